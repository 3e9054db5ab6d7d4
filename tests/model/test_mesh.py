import pytest
import torch

from model.errors import InvalidGraph
from model.mesh import mesh_edges
from model.tasks import mesh_graph

CORNERS = [[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_every_side_is_an_edge_in_both_directions_once():
    edges = mesh_edges(torch.tensor([[0, 1, 2], [2, 1, 3]]), 4)
    assert edges.T.tolist() == [
        [1, 0], [2, 0], [0, 1], [2, 1], [3, 1], [0, 2], [1, 2], [3, 2], [1, 3], [2, 3],
    ]  # fmt: skip


def test_a_face_that_names_a_vertex_twice_makes_no_loop():
    assert mesh_edges(torch.tensor([[0, 0, 1]]), 2).tolist() == [[1, 0], [0, 1]]


def test_edges_do_not_depend_on_the_order_of_faces():
    faces = torch.randint(0, 20, (40, 3))
    assert torch.equal(mesh_edges(faces, 20), mesh_edges(faces.flip(0).roll(1, 1), 20))


@pytest.mark.parametrize(
    "vertices, faces, path, message",
    [
        (CORNERS, [[0, 1, 4]], "mesh.faces[0]", r"must lie in \[0, 4\), got \[0, 1, 4\]"),
        (CORNERS, [[0, 1, 2], [0, -1, 2]], "mesh.faces[1]", r"got \[0, -1, 2\]"),
        (CORNERS, [[0, 1, 2.5]], "mesh.faces[0]", "whole numbers"),
        (CORNERS, [[0, 1, float("nan")]], "mesh.faces[0]", "whole numbers"),
        (CORNERS, [[0, 1, float("inf")]], "mesh.faces[0]", "must lie in"),
        (CORNERS, [[0, 1]], "mesh.faces", r"must be \[\*, 3\], got shape \[1, 2\]"),
        (CORNERS, [[0, 1, 2], [0, 1]], "mesh.faces", "rows differ"),
        (CORNERS, [], "mesh.faces", "at least one face"),
        (CORNERS, [["a", "b", "c"]], "mesh.faces", "must be numbers"),
        (CORNERS, [[True, False, True]], "mesh.faces", "must be numbers, got bool"),
        (CORNERS, [[0, 1, 10**30]], "mesh.faces", "numbers"),
        (CORNERS, None, "mesh.faces", "numbers"),
        ([], [[0, 1, 2]], "mesh.vertices", r"must be \[V, 3\]"),
        ([[0, 0]], [[0, 0, 0]], "mesh.vertices", r"must be \[V, 3\], got shape \[1, 2\]"),
        ([[0, 0, 0], [0, float("nan"), 0]], [[0, 1, 0]], "mesh.vertices[1][1]", "got nan"),
        ([[0, 0, 0], [0, 0, 1e31]], [[0, 1, 0]], "mesh.vertices[1][2]", r"got 1e\+31"),
    ],
)
def test_a_bad_mesh_is_refused_with_the_field_and_what_it_held(vertices, faces, path, message):
    with pytest.raises(InvalidGraph, match=message) as caught:
        mesh_graph(vertices, faces)
    assert caught.value.path == path
