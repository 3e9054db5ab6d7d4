"""What is known of a reference shape beside its geometry: named landmarks and body segments."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.errors import BundleError

FILE = "attributes.json"
MAX_NAME = 60


@dataclass(frozen=True)
class Attributes:
    """Landmarks are reference vertices with a name; every reference vertex is in one segment."""

    landmarks: dict[str, int]
    segment_names: list[str]
    segments: NDArray[np.int32]  # of each reference vertex; empty if there are no segments


def parse_attributes(content: bytes, vertices: int, where: str = FILE) -> Attributes:
    """Read and check `{"landmarks": {name: vertex}, "segments": {"names", "of_vertex"}}`."""
    try:
        facts = json.loads(content)
    except ValueError as error:
        raise BundleError(f"{where} is not JSON: {error}") from None
    if not isinstance(facts, dict) or not facts or facts.keys() - {"landmarks", "segments"}:
        raise BundleError(f"{where} must be an object with landmarks, segments or both")
    landmarks = facts.get("landmarks", {})
    if not isinstance(landmarks, dict):
        raise BundleError(f"{where}: landmarks must be an object of names and vertices")
    for name, vertex in landmarks.items():
        _check_name(name, f"{where}: a landmark")
        _check_index(vertex, vertices, f"{where}: landmark {name!r}")
    names, segments = _segments(facts.get("segments"), vertices, where)
    return Attributes(landmarks, names, segments)


def _segments(given: Any, vertices: int, where: str) -> tuple[list[str], NDArray[np.int32]]:
    if given is None:
        return [], np.zeros(0, np.int32)
    if not isinstance(given, dict) or given.keys() != {"names", "of_vertex"}:
        raise BundleError(f"{where}: segments must be an object with names and of_vertex")
    names, of_vertex = given["names"], given["of_vertex"]
    if not isinstance(names, list) or not names:
        raise BundleError(f"{where}: segments.names must be a list that is not empty")
    for name in names:
        _check_name(name, f"{where}: a segment")
    if len(set(names)) != len(names):
        raise BundleError(f"{where}: segments.names must not repeat a name")
    if not isinstance(of_vertex, list) or len(of_vertex) != vertices:
        got = len(of_vertex) if isinstance(of_vertex, list) else type(of_vertex).__name__
        raise BundleError(
            f"{where}: segments.of_vertex must name a segment for each of the {vertices} "
            f"reference vertices, got {got}"
        )
    for vertex, segment in enumerate(of_vertex):
        _check_index(segment, len(names), f"{where}: segments.of_vertex[{vertex}]")
    return names, np.array(of_vertex, np.int32)


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise BundleError(f"{what} must have a name of 1 to {MAX_NAME} letters, got {name!r}")


def _check_index(index: Any, size: int, what: str) -> None:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < size:
        raise BundleError(f"{what} must be a whole number from 0 to {size - 1}, got {index!r}")
