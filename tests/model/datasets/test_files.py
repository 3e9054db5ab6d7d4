from pathlib import Path

import numpy as np
import pytest

from model.datasets.files import InvalidData, MissingData, read_npz


def test_a_missing_file_says_where_to_get_it(tmp_path: Path):
    with pytest.raises(MissingData, match=r"cora.npz is missing: ask the library"):
        read_npz(tmp_path / "cora.npz", {"y": 1}, "ask the library")


def test_a_missing_array_is_named(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(InvalidData, match="no array 'y'"):
        read_npz(tmp_path / "a.npz", {"x": 1, "y": 1}, "")


def test_an_array_of_the_wrong_shape_is_named(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(InvalidData, match="x must have 2 dimensions, got 1"):
        read_npz(tmp_path / "a.npz", {"x": 2}, "")


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 cut off"])
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InvalidData, match="cannot be read"):
        read_npz(tmp_path / "a.npz", {"x": 1}, "")


def test_pickled_objects_are_never_loaded(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InvalidData, match="cannot be read"):
        read_npz(tmp_path / "a.npz", {"x": 1}, "")
