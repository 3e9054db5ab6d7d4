"""What OpenAPI says of the bodies we read ourselves: schemas, media types, examples that work."""

from __future__ import annotations

import math
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from model.graph import CORRESPONDENCE, GRAPH_LABEL, NODE_LABELS
from service import schemas

_REF = "#/components/schemas/{model}"
_BODIES: dict[str, type[BaseModel]] = {
    CORRESPONDENCE: schemas.CorrespondenceRequest,
    NODE_LABELS: schemas.GraphRequest,
    GRAPH_LABEL: schemas.GraphRequest,
}
_FILES = {
    CORRESPONDENCE: ["model/ply", "model/obj", "model/off", "model/stl", "model/gltf-binary"],
    NODE_LABELS: [],
    GRAPH_LABEL: ["image/png", "image/jpeg"],
}
_QUERY = {
    CORRESPONDENCE: {
        "format": "`ply`, `obj`, `off`, `stl` or `glb`: what file the body is, whatever its type.",
        "top_k": "Candidates per vertex, for file bodies.",
        "include": "Any of `landmarks,segments,points,reverse`, where the model has them.",
        "refine": "`true` for a better answer in more time, where the model offers it.",
    },
    NODE_LABELS: {"include": "`probabilities` adds every class of every node."},
    GRAPH_LABEL: {"include": "`graph` adds the graph that was classified."},
}
# the models whose names stand in examples
SMALL, ANY = "mnist-superpixels", "bodies-any"
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
_PROBLEMS = {
    400: "Not JSON",
    401: "No key",
    403: "Wrong key",
    404: "No such model",
    406: "Accept asks for what is not written",
    408: "Body too slow",
    413: "Too large",
    415: "Content-Type not taken",
    422: "Invalid, with the field",
    429: "Full; see Retry-After",
    503: "Not ready or shutting down",
    504: "Past the deadline",
}


def request_body(task: str) -> dict[str, Any]:
    content: dict[str, Any] = {
        "application/json": {
            "schema": {"$ref": _REF.format(model=_BODIES[task].__name__)},
            "example": _EXAMPLES[task],
        }
    }
    for media in _FILES[task]:
        content[media] = {"schema": {"type": "string", "format": "binary"}}
    query = {"model": "Name, or name@version, when the body does not say.", **_QUERY[task]}
    return {
        "requestBody": {"required": True, "content": content},
        "parameters": [
            {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
            for name, text in query.items()
        ]
        + [
            {
                "name": "X-Timeout-Ms",
                "in": "header",
                "description": "Answer within this time or not at all.",
                "schema": {"type": "integer", "minimum": 1},
            }
        ],
    }


def responses(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    good: dict[str, Any] = {
        "model": model,
        "description": "The answer; arrays alone with Accept: application/octet-stream or x-npy.",
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "application/x-npy": {"schema": {"type": "string", "format": "binary"}},
        },
    }
    problem = {"schema": {"$ref": _REF.format(model="ProblemBody")}}
    return {
        200: good,
        **{
            status: {"description": text, "content": {"application/problem+json": problem}}
            for status, text in _PROBLEMS.items()
        },
    }


def infer_body() -> dict[str, Any]:
    """What `/v2/…/infer` takes, in the words of its protocol."""
    content = {
        "application/json": {"schema": _INFER, "example": _INFER_EXAMPLE},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    }
    text = "JSON; with Inference-Header-Content-Length, binary tensors follow it."
    return {"requestBody": {"required": True, "description": text, "content": content}}


def infer_responses() -> dict[int | str, dict[str, Any]]:
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    return {
        status: {"description": text, "content": {"application/json": {"schema": error}}}
        for status, text in _PROBLEMS.items()
        if status not in (406, 422)  # that protocol knows neither
    }


def install(app: FastAPI) -> None:
    """Have /openapi.json include the schemas that only our own decoder uses."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _build(app: FastAPI) -> dict[str, Any]:
    tree = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    wanted: list[type[BaseModel]] = [
        schemas.CorrespondenceRequest,
        schemas.GraphRequest,
        schemas.ProblemBody,
    ]
    _, extra = models_json_schema([(m, "validation") for m in wanted], ref_template=_REF)
    known = tree.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in extra.get("$defs", {}).items():
        known.setdefault(name, schema)
    tree["components"]["securitySchemes"] = _KEYS
    tree["security"] = [{}, *({name: []} for name in _KEYS)]  # {}: a service may be open to all
    for path, operations in tree["paths"].items():
        for operation in operations.values():
            told = operation.get("responses", {})
            if "application/problem+json" not in told.get("422", {}).get("content", {}):
                told.pop("422", None)  # FastAPI's own, which we never answer
            for status in (401, 403, 404) if path.startswith(("/v1/", "/v2/")) else ():
                if status != 404 or "{name}" in path:
                    told.setdefault(str(status), {"description": _PROBLEMS[status]})
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    parameter["example"] = SMALL if path.endswith("/infer") else ANY
    return tree


def _icosahedron() -> dict[str, Any]:
    g = round((1 + math.sqrt(5)) / 2, 6)
    vertices = [[-1, g, 0], [1, g, 0], [-1, -g, 0], [1, -g, 0], [0, -1, g], [0, 1, g]]
    vertices += [[0, -1, -g], [0, 1, -g], [g, 0, -1], [g, 0, 1], [-g, 0, -1], [-g, 0, 1]]
    faces = [[0, 11, 5], [0, 5, 1], [0, 1, 7], [0, 7, 10], [0, 10, 11], [1, 5, 9], [5, 11, 4]]
    faces += [[11, 10, 2], [10, 7, 6], [7, 1, 8], [3, 9, 4], [3, 4, 2], [3, 2, 6], [3, 6, 8]]
    faces += [[3, 8, 9], [4, 9, 5], [2, 4, 11], [6, 2, 10], [8, 6, 7], [9, 8, 1]]
    return {"vertices": vertices, "faces": faces}


_EXAMPLES: dict[str, Any] = {
    CORRESPONDENCE: {"mesh": _icosahedron(), "top_k": 1},
    NODE_LABELS: {
        "graph": {
            "num_nodes": 4,
            "edges": [[0, 1], [1, 2], [2, 3], [3, 0]],
            "features": {"size": 1433, "indices": [[19, 81], [146], [315, 774], [877]]},
        }
    },
    GRAPH_LABEL: {
        "graph": {
            "num_nodes": 4,
            "edges": [[0, 1], [1, 2], [2, 3], [3, 0]],
            "features": [[0.1], [0.9], [0.8], [0.2]],
            "positions": [[4.0, 4.0], [20.0, 5.0], [21.0, 22.0], [6.0, 20.0]],
        }
    },
}


def _tensor(name: str, datatype: str, shape: list[int], data: list[float]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


_PARAMETERS = {"type": "object", "additionalProperties": True}
_INFER = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": _PARAMETERS,
        "inputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "datatype", "shape"],
                "properties": {
                    "name": {"type": "string"},
                    "datatype": {"type": "string"},
                    "shape": {"type": "array", "items": {"type": "integer"}},
                    "parameters": _PARAMETERS,
                    "data": {"type": "array", "items": {}},
                },
            },
        },
        "outputs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "parameters": _PARAMETERS},
            },
        },
    },
}
_INFER_EXAMPLE = {
    "id": f"for {SMALL}",
    "inputs": [
        _tensor("features", "FP32", [4, 1], [0.1, 0.9, 0.8, 0.2]),
        _tensor("positions", "FP32", [4, 2], [4, 4, 20, 5, 21, 22, 6, 20]),
        _tensor("edge_index", "INT64", [2, 4], [0, 1, 2, 3, 1, 2, 3, 0]),
    ],
    "parameters": {"undirected": True},
}
