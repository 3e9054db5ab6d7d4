"""What a correspondence carries to a posted mesh: landmarks, segments, points, the way back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.places import Shape, find_on, place_between
from service.inputs import Question

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Carried:
    """What was asked for: as it stands in JSON, and as flat arrays with the names of their rows."""

    json: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)  # of an array's rows or values


def carry(question: Question, arrays: Arrays) -> Carried:
    """Everything in `question.include`, from the candidates of every posted vertex."""
    carried = Carried()
    include, model = question.include, question.model
    index, confidence = arrays["index"], arrays["confidence"]
    attributes = model.bundle.attributes
    if "segments" in include and attributes is not None:
        names, faces = attributes.segment_names, question.graph.arrays["faces"]
        segments = smooth_segments(attributes.segments[index[:, 0]], faces, len(names))
        _add_segments(carried, names, segments)
    if not include & {"landmarks", "points", "reverse"}:
        return carried
    reference = model.surface
    places = place_between(reference, index, confidence)
    if "points" in include:
        _add(carried, "points", {"face": places.face, "barycentric": places.barycentric})
    if include & {"landmarks", "reverse"}:
        posted = Shape(question.graph.arrays["vertices"], question.graph.arrays["faces"])
        image = reference.at(places)
        marks = attributes.landmarks if "landmarks" in include and attributes is not None else {}
        vertices = np.array(list(marks.values()), np.int64)
        everything = np.arange(len(reference.vertices))
        wanted = everything if "reverse" in include else vertices
        found = find_on(posted, image, confidence[:, 0], reference, wanted)
        if "landmarks" in include:
            at = vertices if "reverse" in include else np.arange(len(vertices))
            rows = {
                "vertex": found.vertex[at],
                "position": posted.at(found.places)[at],
                "confidence": found.confidence[at],
            }
            _add_landmarks(carried, list(marks), rows)
        if "reverse" in include:
            parts = {
                "face": found.places.face,
                "barycentric": found.places.barycentric,
                "vertex": found.vertex,
                "confidence": found.confidence,
            }
            _add(carried, "reverse", parts)
    return carried


def smooth_segments(
    segments: NDArray[np.integer], faces: NDArray[np.integer], count: int
) -> NDArray[np.integer]:
    """The segment of each vertex [V], or that of its neighbours if over two thirds agree on one.

    Partners scatter by a vertex or two, so borders would be ragged; [F, 3] faces say who is near.
    """
    corner = faces.ravel()
    size = len(segments) * count
    flat = np.zeros(size, np.int64)
    for turn in (1, 2):
        near = np.roll(faces, turn, axis=1).ravel()
        flat += np.bincount(corner * count + segments[near], minlength=size)
    votes = flat.reshape(len(segments), count)
    favoured = votes.argmax(axis=1)
    many = 3 * votes.max(axis=1) > 2 * votes.sum(axis=1)
    return np.where(many, favoured, segments)


def _add(carried: Carried, name: str, parts: Arrays) -> None:
    carried.json[name] = {part: _small(array) for part, array in parts.items()}
    for part, array in carried.json[name].items():
        carried.arrays[f"{name}.{part}"] = array


def _add_segments(carried: Carried, names: list[str], segments: NDArray[Any]) -> None:
    carried.json["segments"] = {"names": names, "of_vertex": _small(segments)}
    carried.arrays["segments"] = _small(segments)
    carried.names["segments"] = names


def _add_landmarks(carried: Carried, names: list[str], rows: Arrays) -> None:
    """By name in JSON, null where that part is not on the mesh; as columns in binary."""
    columns = {part: _small(array) for part, array in rows.items()}
    carried.json["landmarks"] = {
        name: {part: column[n] for part, column in columns.items()}
        if columns["vertex"][n] >= 0
        else None
        for n, name in enumerate(names)
    }
    for part, column in columns.items():
        carried.arrays[f"landmarks.{part}"] = column
        carried.names[f"landmarks.{part}"] = names


def _small(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array, np.int32 if array.dtype.kind in "iu" else np.float32)
