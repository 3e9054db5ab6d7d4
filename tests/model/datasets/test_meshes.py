from pathlib import Path

import numpy as np
import pytest
import trimesh

from model.datasets.files import InvalidData, MissingData
from model.datasets.meshes import load_faust, load_mesh_folder

CORNERS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])


def write(path: Path, scale: float, faces: np.ndarray = FACES) -> None:
    trimesh.Trimesh(CORNERS * scale, faces, process=False).export(path)


@pytest.fixture(scope="module")
def faust(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faust") / "MPI-FAUST" / "training" / "registrations"
    folder.mkdir(parents=True)
    for n in range(100):
        write(folder / f"tr_reg_{n:03d}.ply", n + 1)
    return folder


def test_faust_trains_on_80_and_tests_on_20(faust: Path):
    meshes = load_faust(faust)
    assert len(meshes.train) == 80 and len(meshes.test) == 20
    assert meshes.test[0].max() == 81 and meshes.reference.max() == 1
    assert meshes.faces.tolist() == FACES.tolist()


def test_faust_is_found_where_its_archive_unpacks(faust: Path):
    assert len(load_faust(faust.parents[2]).train) == 80


def test_an_incomplete_faust_names_what_is_missing(tmp_path: Path):
    write(tmp_path / "tr_reg_000.ply", 1)
    with pytest.raises(MissingData, match=r"99 of FAUST's 100 .* tr_reg_001.ply"):
        load_faust(tmp_path)


def test_a_folder_of_meshes_maps_to_its_reference(tmp_path: Path):
    write(tmp_path / "reference.ply", 50)
    for n in range(10):
        write(tmp_path / f"{n}.ply", n + 1)
    meshes = load_mesh_folder(tmp_path)
    assert meshes.reference.max() == 50
    assert [len(p) for p in (meshes.train, meshes.validation, meshes.test)] == [7, 1, 2]


def test_another_triangulation_is_refused_by_name(tmp_path: Path):
    for n in range(10):
        write(tmp_path / f"{n}.ply", n + 1, FACES[::-1] if n == 7 else FACES)
    with pytest.raises(InvalidData, match=r"7.ply is not triangulated like 0.ply"):
        load_mesh_folder(tmp_path)


def test_a_file_that_is_no_mesh_is_refused_by_name(tmp_path: Path):
    for n in range(10):
        write(tmp_path / f"{n}.ply", n + 1)
    (tmp_path / "5.ply").write_text("hello")
    with pytest.raises(InvalidData, match=r"5.ply cannot be read"):
        load_mesh_folder(tmp_path)


def test_a_mesh_without_faces_is_refused_by_name(tmp_path: Path):
    for n in range(10):
        write(tmp_path / f"{n}.ply", n + 1)
    (tmp_path / "5.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\n")
    with pytest.raises(InvalidData, match=r"5.obj"):
        load_mesh_folder(tmp_path)


def test_an_almost_empty_folder_is_refused(tmp_path: Path):
    with pytest.raises(MissingData, match="holds 0 meshes"):
        load_mesh_folder(tmp_path)
