"""Other triangulations lie on the reference surface and cover it."""

import numpy as np
import pytest
import trimesh

from model.anymesh.reference import template
from model.anymesh.topologies import Topology, fine_topology, own_topology, remesh, subdivide


def mesh_of(topology: Topology) -> trimesh.Trimesh:
    return trimesh.Trimesh(
        topology.place(template()[0].astype(np.float32)), topology.faces, process=False
    )


def test_the_reference_has_unit_area_about_the_origin() -> None:
    mesh = trimesh.Trimesh(*template(), process=False)
    assert mesh.area == pytest.approx(1)
    middle = (mesh.triangles_center * mesh.area_faces[:, None]).sum(0)
    np.testing.assert_allclose(middle, 0, atol=1e-9)


def test_own_triangulation_is_the_template() -> None:
    own = own_topology()
    vertices, faces = template()
    np.testing.assert_allclose(own.place(vertices.astype(np.float32)), vertices, atol=1e-6)
    assert np.array_equal(own.faces, faces)


def test_cutting_every_face_keeps_the_surface_closed() -> None:
    fine = mesh_of(fine_topology(2))
    assert len(fine.vertices) == 6890 + 13776 * 3 // 2
    assert fine.is_watertight and fine.is_winding_consistent
    assert fine.area == pytest.approx(1, abs=1e-4)


def test_remeshing_covers_the_body_with_about_as_many_vertices_as_asked() -> None:
    made = remesh(fine_topology(1), 2500, np.random.default_rng(0))
    np.testing.assert_allclose(made.weight.sum(1), 1, atol=1e-6)
    assert 2400 < len(made.corner) <= 2500
    assert np.array_equal(np.unique(made.faces), np.arange(len(made.corner)))
    assert mesh_of(made).area == pytest.approx(1, abs=0.06)


def test_subdividing_cuts_every_face_into_four() -> None:
    coarse = remesh(fine_topology(1), 1500, np.random.default_rng(0))
    made = subdivide(fine_topology(2), coarse)
    sides = mesh_of(coarse).edges_unique
    assert len(made.faces) == 4 * len(coarse.faces)
    assert len(made.corner) == len(coarse.corner) + len(sides)
    assert mesh_of(made).is_winding_consistent == mesh_of(coarse).is_winding_consistent
    assert mesh_of(made).area > mesh_of(coarse).area
