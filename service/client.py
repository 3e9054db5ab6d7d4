"""A typed client: numpy arrays or trimesh meshes in, numpy arrays out, binary on the wire.

    >>> from service.client import Client
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     answer = client.correspondence(vertices, faces)
    ...     answer.index, answer.confidence

`Client` and `AsyncClient` have the same methods. Answers 429 and 503 are tried again after the
time that Retry-After names, then after growing pauses; every other refusal is a `ServiceError`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")
Call = Generator[httpx.Request, httpx.Response, T]
"""A conversation without I/O: yields requests, is sent responses, returns the result."""

Tensors = dict[str, NDArray[Any]]

_TYPES = {"FP32": np.float32, "INT64": np.int64, "INT32": np.int32, "FP64": np.float64}
_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}
_LENGTH = "Inference-Header-Content-Length"


class ServiceError(Exception):
    """The service refused: `status`, the problem's `detail`, and `errors` for bad fields."""

    def __init__(self, status: int, detail: str, errors: Sequence[Mapping[str, str]] = ()) -> None:
        fields = "".join(f"\n  {error['path']}: {error['message']}" for error in errors)
        number = f"{status}: " if status else ""  # 0 is nobody's: there was no answer
        super().__init__(f"{number}{detail}{fields if len(errors) > 1 else ''}")
        self.status, self.detail, self.errors = status, detail, list(errors)


@dataclass(frozen=True)
class Landmark:
    """A named place of the reference, found on the posted mesh."""

    vertex: int  # the nearest posted one
    position: NDArray[np.float32]  # [3]
    confidence: float


@dataclass(frozen=True)
class Segments:
    """Which of the named parts each posted vertex belongs to."""

    names: list[str]
    of_vertex: NDArray[np.int64]  # [V]


@dataclass(frozen=True)
class Points:
    """Places on a mesh: a face and how much of each of its corners; face -1 is nowhere."""

    face: NDArray[np.int64]  # [N]
    barycentric: NDArray[np.float32]  # [N, 3]

    def interpolate(self, faces: ArrayLike, values: ArrayLike) -> NDArray[Any]:
        """Values [V, ...] of the vertices of that mesh, at these places; NaN where nowhere."""
        corners = np.asarray(values)[np.asarray(faces)[self.face]]  # [N, 3, ...]
        weights = self.barycentric.reshape(*self.barycentric.shape, *[1] * (corners.ndim - 2))
        found: NDArray[Any] = (corners * weights).sum(1)
        found[self.face < 0] = np.nan
        return found


@dataclass(frozen=True)
class Reverse(Points):
    """For each reference vertex its place on the posted mesh."""

    vertex: NDArray[np.int64]  # [R] the nearest posted one, -1 where that part is not there
    confidence: NDArray[np.float32]  # [R]


@dataclass(frozen=True)
class Correspondence:
    """For each vertex its best reference vertices, best first, and how sure the model is.

    What `include` asks for is set, the rest None.
    """

    model: str
    version: str
    index: NDArray[np.int64]  # [V], or [V, k] for top_k > 1
    confidence: NDArray[np.float32]  # like index
    warning: str | None = None  # when the mesh does not look like what the model knows
    landmarks: dict[str, Landmark] | None = None  # those that are on the mesh
    segments: Segments | None = None
    points: Points | None = None  # of each posted vertex, on the reference
    reverse: Reverse | None = None


@dataclass(frozen=True)
class NodeLabels:
    """A class for every node."""

    model: str
    version: str
    labels: NDArray[np.int64]  # [N]
    names: list[str]  # [N]
    confidence: NDArray[np.float32]  # [N]


@dataclass(frozen=True)
class GraphLabel:
    """One class for the whole graph or image."""

    model: str
    version: str
    label: int
    name: str
    probabilities: NDArray[np.float32]  # [C]


class _Calls:
    """What to ask and how to read the answer, shared by both clients."""

    def __init__(self, url: str, key: str | None) -> None:
        self._base = httpx.URL(url.rstrip("/") + "/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._known: dict[str, dict[str, Any]] = {}

    def _request(self, method: str, path: str, **how: Any) -> httpx.Request:
        headers = self._headers | how.pop("headers", {})
        return httpx.Request(method, self._base.join(path), headers=headers, **how)

    def _models(self) -> Call[list[dict[str, Any]]]:
        response = yield self._request("GET", "v1/models")
        models: list[dict[str, Any]] = orjson.loads(response.content)["models"]
        self._known = {model["name"]: model for model in models}
        return models

    def _choose(self, task: str, name: str | None) -> Call[dict[str, Any]]:
        """The named model, or the one the service uses for this task by default."""
        if not self._known:
            yield from self._models()
        for model in self._known.values():
            if model["name"] == name or (name is None and model["task"] == task and
                                         model["default"]):  # fmt: skip
                return model
        raise ServiceError(404, f"the service has no model {name!r}" if name else
                           f"the service has no model for {task}")  # fmt: skip

    def _infer(
        self, model: str, inputs: Tensors, parameters: dict[str, Any]
    ) -> Call[tuple[dict[str, Any], Tensors]]:
        """One Open Inference Protocol call with binary tensors both ways."""
        tensors = [
            {
                "name": name,
                "datatype": _NAMES[array.dtype],
                "shape": list(array.shape),
                "parameters": {"binary_data_size": array.nbytes},
            }
            for name, array in inputs.items()
        ]
        asked = {"inputs": tensors, "parameters": {"binary_data_output": True, **parameters}}
        head = orjson.dumps(asked)
        body = b"".join([head, *(array.tobytes() for array in inputs.values())])
        response = yield self._request(
            "POST", f"v2/models/{model}/infer", content=body, headers={_LENGTH: str(len(head))}
        )
        length = int(response.headers.get(_LENGTH, len(response.content)))
        answer = orjson.loads(response.content[:length])
        arrays: Tensors = {}
        offset = length
        for tensor in answer["outputs"]:
            kind, shape = _TYPES[tensor["datatype"]], tensor["shape"]
            size = tensor["parameters"]["binary_data_size"]
            flat = np.frombuffer(response.content[offset : offset + size], kind)
            arrays[tensor["name"]] = flat.reshape(shape)
            offset += size
        return answer, arrays

    def _correspondence(
        self,
        mesh: Any,
        faces: ArrayLike | None,
        model: str | None,
        top_k: int,
        include: Sequence[str],
        refine: bool,
    ) -> Call[Correspondence]:
        vertices = mesh if faces is not None else mesh.vertices
        chosen = yield from self._choose("correspondence", model)
        inputs: Tensors = {
            "vertices": np.ascontiguousarray(vertices, np.float32),
            "faces": np.ascontiguousarray(mesh.faces if faces is None else faces, np.int64),
        }
        options: dict[str, Any] = {"top_k": top_k} if top_k > 1 else {}
        options |= {"include": ",".join(include)} if include else {}
        options |= {"refine": True} if refine else {}
        answer, arrays = yield from self._infer(chosen["name"], inputs, options)
        index = arrays["candidates" if top_k > 1 else "correspondence"]
        confidence = arrays["candidate_confidence" if top_k > 1 else "confidence"]
        return Correspondence(
            answer["model_name"],
            answer["model_version"],
            index,
            confidence,
            answer.get("parameters", {}).get("warning"),
            **_carried(arrays, chosen),
        )

    def _node_labels(
        self,
        edges: ArrayLike,
        features: ArrayLike,
        undirected: bool,
        model: str | None,
        coordinates: dict[str, ArrayLike | None],
    ) -> Call[NodeLabels]:
        chosen = yield from self._choose("node-labels", model)
        inputs: Tensors = {
            "features": np.ascontiguousarray(features, np.float32),
            "edge_index": _edge_index(edges, undirected),
        }
        for name, rows in coordinates.items():
            if rows is not None:
                inputs[name] = np.ascontiguousarray(rows, np.float32)
        answer, arrays = yield from self._infer(chosen["name"], inputs, {})
        labels, names = arrays["labels"], chosen["labels"]
        return NodeLabels(
            answer["model_name"],
            answer["model_version"],
            labels,
            [names[label] for label in labels],
            arrays["confidence"],
        )

    def _graph_label(
        self,
        features: ArrayLike,
        positions: ArrayLike,
        edges: ArrayLike,
        undirected: bool,
        model: str | None,
    ) -> Call[GraphLabel]:
        chosen = yield from self._choose("graph-label", model)
        inputs: Tensors = {
            "features": np.ascontiguousarray(features, np.float32),
            "positions": np.ascontiguousarray(positions, np.float32),
            "edge_index": _edge_index(edges, undirected),
        }
        answer, arrays = yield from self._infer(chosen["name"], inputs, {})
        label = int(arrays["label"].ravel()[0])
        return GraphLabel(
            answer["model_name"],
            answer["model_version"],
            label,
            chosen["labels"][label],
            arrays["probabilities"].ravel(),
        )

    def _post(
        self, route: str, content: bytes, kind: str, options: Mapping[str, Any]
    ) -> Call[dict[str, Any]]:
        """A file as it is, by its content type; the service's JSON answer."""
        query = {name: value for name, value in options.items() if value is not None}
        response = yield self._request(
            "POST", route, content=content, params=query, headers={"Content-Type": kind}
        )
        answer: dict[str, Any] = orjson.loads(response.content)
        return answer

    def _get(self, path: str) -> Call[dict[str, Any]]:
        response = yield self._request("GET", path, headers={"Accept": "application/json"})
        answer: dict[str, Any] = orjson.loads(response.content)
        return answer

    def _image_label(self, image: bytes, model: str | None) -> Call[GraphLabel]:
        kind = "image/png" if image.startswith(b"\x89PNG") else "image/jpeg"
        answer = yield from self._post("v1/graph-label", image, kind, {"model": model})
        return GraphLabel(
            answer["model"]["name"],
            answer["model"]["version"],
            answer["label"],
            answer["name"],
            np.asarray(answer["probabilities"], np.float32),
        )


def _carried(arrays: Tensors, model: dict[str, Any]) -> dict[str, Any]:
    """What came beside the answer, by the names of the fields of `Correspondence`."""
    parts: dict[str, Tensors] = {}
    for name, array in arrays.items():
        group, _, part = name.partition(".")
        if part:
            parts.setdefault(group, {})[part] = array
    carried: dict[str, Any] = {}
    if "landmarks" in parts:
        columns = [parts["landmarks"][name] for name in ("vertex", "position", "confidence")]
        rows = zip(*columns, strict=True)
        carried["landmarks"] = {
            name: Landmark(int(vertex), position, float(sure))
            for name, (vertex, position, sure) in zip(model["landmarks"], rows, strict=True)
            if vertex >= 0
        }
    if "segments" in arrays:
        carried["segments"] = Segments(model["segments"], arrays["segments"])
    if "points" in parts:
        carried["points"] = Points(**parts["points"])
    if "reverse" in parts:
        carried["reverse"] = Reverse(**parts["reverse"])
    return carried


def _edge_index(edges: ArrayLike, undirected: bool) -> NDArray[np.int64]:
    """Pairs [E, 2] as the [2, E] of the wire, with the reverse of each where wanted."""
    pairs = np.asarray(edges, np.int64).reshape(-1, 2)
    if undirected:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    return np.ascontiguousarray(pairs.T)


class _Retries:
    """Whether to try again, and after how long: what the service says, else growing pauses."""

    def __init__(self, retries: int) -> None:
        self._left, self._pause = retries, 0.1

    def pause(self, response: httpx.Response) -> float | None:
        if response.status_code not in (429, 503) or self._left == 0:
            return None
        self._left -= 1
        self._pause *= 2
        said = response.headers.get("Retry-After", "")
        return float(said) if said.isdigit() else self._pause


def _check(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        problem = orjson.loads(response.content)
        detail = problem.get("detail") or problem["error"]
    except (orjson.JSONDecodeError, KeyError, AttributeError):
        problem, detail = {}, response.reason_phrase
    raise ServiceError(response.status_code, detail, problem.get("errors", ()))


class Client(_Calls):
    """Calls that wait for their answer."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(url, key)
        self._http = httpx.Client(timeout=timeout, transport=transport)
        self._retries = retries

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _run(self, call: Call[T]) -> T:
        try:
            request = next(call)
            while True:
                request = call.send(self._send(request))
        except StopIteration as done:
            result: T = done.value
            return result

    def _send(self, request: httpx.Request) -> httpx.Response:
        retries = _Retries(self._retries)
        while True:
            try:
                response = self._http.send(request)
            except httpx.TransportError as error:
                raise ServiceError(0, f"cannot reach {self._base}: {error}") from None
            pause = retries.pause(response)
            if pause is None:
                return _check(response)
            time.sleep(pause)

    def models(self) -> list[dict[str, Any]]:
        """What the service serves, with its measured scores."""
        return self._run(self._models())

    def correspondence(
        self,
        mesh: Any,
        faces: ArrayLike | None = None,
        *,
        model: str | None = None,
        top_k: int = 1,
        include: Sequence[str] = (),
        refine: bool = False,
    ) -> Correspondence:
        """Where each vertex lies on the reference: vertices and faces, or one trimesh mesh.

        `include` may name landmarks, segments, points and reverse, where the model has them.
        """
        return self._run(self._correspondence(mesh, faces, model, top_k, include, refine))

    def node_labels(
        self,
        edges: ArrayLike,
        features: ArrayLike,
        *,
        undirected: bool = True,
        positions: ArrayLike | None = None,
        pseudo: ArrayLike | None = None,
        model: str | None = None,
    ) -> NodeLabels:
        """A class for every node: edges [E, 2], features [N, F].

        `positions` [N, D] or `pseudo` [E, D] for a model that takes them.
        """
        places = {"positions": positions, "pseudo": pseudo}
        return self._run(self._node_labels(edges, features, undirected, model, places))

    def graph_label(
        self,
        features: ArrayLike,
        positions: ArrayLike,
        edges: ArrayLike,
        *,
        undirected: bool = True,
        model: str | None = None,
    ) -> GraphLabel:
        """The class of a graph: features [N, F], positions [N, 2], edges [E, 2]."""
        return self._run(self._graph_label(features, positions, edges, undirected, model))

    def image_label(self, image: bytes, *, model: str | None = None) -> GraphLabel:
        """The class of a PNG or JPEG image, given as its bytes."""
        return self._run(self._image_label(image, model))

    def post(self, route: str, content: bytes, kind: str, **options: Any) -> dict[str, Any]:
        """Post a file as it is to a route; the JSON answer."""
        return self._run(self._post(route, content, kind, options))

    def get(self, path: str) -> dict[str, Any]:
        """The JSON at a path of the service, such as a reference mesh or a sample request."""
        return self._run(self._get(path))


class AsyncClient(_Calls):
    """The same calls, to be awaited."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(url, key)
        self._http = httpx.AsyncClient(timeout=timeout, transport=transport)
        self._retries = retries

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _run(self, call: Call[T]) -> T:
        try:
            request = next(call)
            while True:
                request = call.send(await self._send(request))
        except StopIteration as done:
            result: T = done.value
            return result

    async def _send(self, request: httpx.Request) -> httpx.Response:
        retries = _Retries(self._retries)
        while True:
            try:
                response = await self._http.send(request)
            except httpx.TransportError as error:
                raise ServiceError(0, f"cannot reach {self._base}: {error}") from None
            pause = retries.pause(response)
            if pause is None:
                return _check(response)
            await asyncio.sleep(pause)

    async def models(self) -> list[dict[str, Any]]:
        """What the service serves, with its measured scores."""
        return await self._run(self._models())

    async def correspondence(
        self,
        mesh: Any,
        faces: ArrayLike | None = None,
        *,
        model: str | None = None,
        top_k: int = 1,
        include: Sequence[str] = (),
        refine: bool = False,
    ) -> Correspondence:
        """Where each vertex lies on the reference: vertices and faces, or one trimesh mesh.

        `include` may name landmarks, segments, points and reverse, where the model has them.
        """
        return await self._run(self._correspondence(mesh, faces, model, top_k, include, refine))

    async def node_labels(
        self,
        edges: ArrayLike,
        features: ArrayLike,
        *,
        undirected: bool = True,
        positions: ArrayLike | None = None,
        pseudo: ArrayLike | None = None,
        model: str | None = None,
    ) -> NodeLabels:
        """A class for every node: edges [E, 2], features [N, F].

        `positions` [N, D] or `pseudo` [E, D] for a model that takes them.
        """
        places = {"positions": positions, "pseudo": pseudo}
        return await self._run(self._node_labels(edges, features, undirected, model, places))

    async def graph_label(
        self,
        features: ArrayLike,
        positions: ArrayLike,
        edges: ArrayLike,
        *,
        undirected: bool = True,
        model: str | None = None,
    ) -> GraphLabel:
        """The class of a graph: features [N, F], positions [N, 2], edges [E, 2]."""
        return await self._run(self._graph_label(features, positions, edges, undirected, model))

    async def image_label(self, image: bytes, *, model: str | None = None) -> GraphLabel:
        """The class of a PNG or JPEG image, given as its bytes."""
        return await self._run(self._image_label(image, model))

    async def post(self, route: str, content: bytes, kind: str, **options: Any) -> dict[str, Any]:
        """Post a file as it is to a route; the JSON answer."""
        return await self._run(self._post(route, content, kind, options))

    async def get(self, path: str) -> dict[str, Any]:
        """The JSON at a path of the service, such as a reference mesh or a sample request."""
        return await self._run(self._get(path))
