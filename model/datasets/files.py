"""Reading data files that may be missing, foreign or broken, and saying so."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from model.errors import SplineCNNError


class MissingData(SplineCNNError):
    """A data set that is not there, with where people get it."""


class InvalidData(SplineCNNError):
    """A data file that is there but is not what it should be."""


def read_npz(path: Path, wanted: dict[str, int], where: str) -> dict[str, np.ndarray[Any, Any]]:
    """The wanted arrays of an .npz file, given with their number of dimensions."""
    if not path.is_file():
        raise MissingData(f"{path} is missing: {where}")
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = {name: file[name] for name in wanted if name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InvalidData(f"{path} cannot be read as .npz ({error}); {where}") from error
    for name, dimensions in wanted.items():
        if name not in arrays:
            raise InvalidData(f"{path} has no array {name!r}; {where}")
        if arrays[name].ndim != dimensions:
            raise InvalidData(
                f"{path}: {name} must have {dimensions} dimensions, got {arrays[name].ndim}"
            )
    return arrays
