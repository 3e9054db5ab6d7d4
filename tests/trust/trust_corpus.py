"""Requests of mixed kinds and sizes, each valid and each with one right answer."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import orjson
import trimesh

from tests.trust.trust_load import Ask, prepare

HEAD = "Inference-Header-Content-Length"
# what the default model for meshes can be asked for beside the correspondence
WISHES: list[dict[str, Any]] = [
    {"include": ["landmarks", "segments"]},
    {"refine": True, "include": ["points", "reverse"]},
    {},
    {"refine": True, "top_k": 3},
]


def picture(nodes: int, rng: np.random.Generator) -> dict[str, Any]:
    """Points in the plane, a path through them and some chords."""
    chords = rng.integers(0, nodes, (2 * nodes, 2))
    path = np.stack([np.arange(nodes - 1), np.arange(1, nodes)], 1)
    return {
        "num_nodes": nodes,
        "edges": np.concatenate([path, chords]).tolist(),
        "features": rng.random((nodes, 1)).round(4).tolist(),
        "positions": (28 * rng.random((nodes, 2))).round(3).tolist(),
    }


def papers(nodes: int, features: int, rng: np.random.Generator) -> dict[str, Any]:
    """Nodes with a few words each, as sparse features."""
    words = [
        np.unique(rng.integers(0, features, rng.integers(1, 20))).tolist() for _ in range(nodes)
    ]
    return {
        "num_nodes": nodes,
        "edges": rng.integers(0, nodes, (2 * nodes, 2)).tolist(),
        "features": {"size": features, "indices": words},
    }


def lumpy(subdivisions: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A ball whose surface is uneven: 42, 162, 642, 2,562 or 10,242 vertices."""
    ball = trimesh.creation.icosphere(subdivisions)
    noise = rng.normal(0, 0.02, ball.vertices.shape)
    return np.float32(ball.vertices + noise), np.int32(ball.faces)


def tensors(arrays: dict[str, np.ndarray], kinds: dict[str, str]) -> tuple[bytes, int]:
    """An infer request with its tensors behind the JSON, and the length of the JSON."""
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": kinds[name],
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]
    head = orjson.dumps({"inputs": inputs})
    return head + b"".join(array.tobytes() for array in arrays.values()), len(head)


def ask_picture(nodes: int, rng: np.random.Generator, key: int = 0, **headers: str) -> Ask:
    return prepare("picture", "/v1/graph-label", {"graph": picture(nodes, rng)}, headers, key)


def ask_papers(
    nodes: int, features: int, rng: np.random.Generator, key: int = 0, **headers: str
) -> Ask:
    body = {"graph": papers(nodes, features, rng), "model": "cora"}
    return prepare("papers", "/v1/node-labels", body, headers, key)


def ask_mesh(subdivisions: int, rng: np.random.Generator, key: int = 0, **headers: str) -> Ask:
    vertices, faces = lumpy(subdivisions, rng)
    body, head = tensors(
        {"vertices": vertices, "faces": faces}, {"vertices": "FP32", "faces": "INT32"}
    )
    return prepare(
        f"mesh{len(vertices)}", "/v2/models/bodies/infer", body, {HEAD: str(head), **headers}, key
    )


def ask_mesh_json(
    subdivisions: int, rng: np.random.Generator, key: int = 0, *, packed: bool = False
) -> Ask:
    vertices, faces = lumpy(subdivisions, rng)
    mesh = {"vertices": vertices.tolist(), "faces": faces.tolist()}
    text = orjson.dumps({"mesh": mesh, "model": "bodies", "top_k": 2})
    headers = {"Content-Type": "application/json"}
    if packed:
        text = gzip.compress(text, 1)
        headers["Content-Encoding"] = "gzip"
    return prepare("mesh-json", "/v1/correspondence", text, headers, key)


def ask_any_mesh(
    subdivisions: int, rng: np.random.Generator, key: int, wish: dict[str, Any]
) -> Ask:
    """Of the model that answers when none is named."""
    vertices, faces = lumpy(subdivisions, rng)
    mesh = {"vertices": vertices.tolist(), "faces": faces.tolist()}
    return prepare("any-mesh", "/v1/correspondence", {"mesh": mesh, **wish}, {}, key)


def ask_mesh_file(kind: str, rng: np.random.Generator, key: int = 0) -> Ask:
    vertices, faces = lumpy(1, rng)
    content = trimesh.Trimesh(vertices, faces, process=False).export(file_type=kind)
    data = content if isinstance(content, bytes) else content.encode()
    return prepare(f"mesh-{kind}", f"/v1/correspondence?model=bodies&format={kind}", data, {}, key)


def mixture(count: int, features: int, seed: int = 0) -> list[Ask]:
    """Mostly small graphs, some meshes, in every form in which they can be sent."""
    rng = np.random.default_rng(seed)
    asks: list[Ask] = []
    for key in range(count):
        turn = key % 20
        if turn < 9:
            asks.append(ask_picture(int(rng.integers(3, 76)), rng, key))
        elif turn == 9:
            asks.append(ask_any_mesh(int(rng.integers(1, 3)), rng, key, WISHES[key // 20 % 4]))
        elif turn < 15:
            asks.append(ask_papers(int(rng.integers(2, 200)), features, rng, key))
        elif turn == 15:
            asks.append(ask_mesh(int(rng.integers(1, 3)), rng, key))
        elif turn == 16:
            asks.append(ask_mesh_json(int(rng.integers(0, 3)), rng, key, packed=key % 40 == 16))
        elif turn == 17:
            asks.append(ask_mesh_file(["ply", "obj", "off", "glb"][key // 20 % 4], rng, key))
        elif turn == 18:
            asks.append(ask_picture(int(rng.integers(200, 1200)), rng, key))
        else:
            asks.append(ask_papers(int(rng.integers(500, 2000)), features, rng, key))
    order = rng.permutation(count)
    return [asks[index] for index in order]
