"""A request that works for each task, made without any data."""

from typing import Any

import numpy as np

from model.graph import CORRESPONDENCE, GRAPH_LABEL, POSITIONS, PSEUDO, Coordinates
from model.tasks import IMAGE_SIZE, image_graph


def sample_request(
    task: str,
    image: str | None,
    num_features: int | None,
    reference: tuple[np.ndarray, np.ndarray] | None,
    coordinates: Coordinates | None = None,
) -> dict[str, Any]:
    """The reference itself, a drawn digit, or a small ring of nodes with a few features each."""
    if task == CORRESPONDENCE and reference is not None:
        vertices, faces = reference
        # five decimals are tenths of a millimetre on a body, and half the bytes
        short = vertices.astype(np.float64).round(5)
        return {"mesh": {"vertices": short.tolist(), "faces": faces.tolist()}}
    if task == GRAPH_LABEL and image is not None:
        arrays = image_graph(digit(), image).arrays
        edges = arrays["edge_index"].T
        return {
            "graph": {
                "num_nodes": len(arrays["features"]),
                "edges": edges[edges[:, 0] < edges[:, 1]].tolist(),  # both ways by default
                "features": arrays["features"].astype(np.float64).round(5).tolist(),
                "positions": arrays["positions"].astype(np.float64).round(3).tolist(),
            }
        }
    return _ring(task, num_features or 1, coordinates)


def digit() -> np.ndarray:
    """A seven, white on black, 28 x 28."""
    picture = np.zeros((IMAGE_SIZE, IMAGE_SIZE), np.uint8)
    picture[5:8, 7:21] = 255
    for step in range(15):
        column = 18 - step * 8 // 15
        picture[8 + step, column : column + 3] = 255
    return picture


def _ring(
    task: str, num_features: int, coordinates: Coordinates | None, num_nodes: int = 12
) -> dict[str, Any]:
    """Twelve nodes in a ring, every third also joined to the node opposite."""
    edges = [[n, (n + 1) % num_nodes] for n in range(num_nodes)]
    edges += [[n, (n + num_nodes // 2) % num_nodes] for n in range(0, num_nodes, 3)]
    graph: dict[str, Any] = {"num_nodes": num_nodes, "edges": edges}
    picks = [sorted({(7 * n + 13 * f) % num_features for f in range(5)}) for n in range(num_nodes)]
    if task != GRAPH_LABEL:
        graph["features"] = {"size": num_features, "indices": picks}
        return {"graph": graph | _places(coordinates, edges, num_nodes)}
    rows = np.zeros((num_nodes, num_features))
    for n, pick in enumerate(picks):
        rows[n, pick] = 1
    graph["features"] = rows.tolist()
    return {"graph": graph | _places(Coordinates(POSITIONS, 2), edges, num_nodes)}


def _places(
    coordinates: Coordinates | None, edges: list[list[int]], num_nodes: int
) -> dict[str, Any]:
    """Positions on a circle that may rise, or pseudo-coordinates of edges in one direction."""
    if coordinates is None:
        return {}
    turn = np.arange(num_nodes) / num_nodes
    angle = 2 * np.pi * turn
    if coordinates.name == POSITIONS:
        columns = np.stack([np.cos(angle), np.sin(angle), turn], 1)
        return {POSITIONS: columns[:, : coordinates.size].round(5).tolist()}
    rows = [[round((s + d * t) % 12 / 12, 3) for d in range(coordinates.size)] for s, t in edges]
    return {"undirected": False, PSEUDO: rows}
