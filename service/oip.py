"""The wire format of the Open Inference Protocol v2: JSON with tensors inside it or behind it."""

from __future__ import annotations

import contextlib
import math
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

from service.body import Body
from service.codec import Document
from service.errors import BadRequest

DTYPES: dict[str, np.dtype[Any]] = {
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_SHORT = 2048  # bytes of JSON
_OBJECT = (dict, simdjson.Object)
_ARRAY = (list, simdjson.Array)
HEADER_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Wanted:
    """An output the caller asks for, and whether its bytes should follow the JSON."""

    name: str
    binary: bool


@dataclass(frozen=True)
class InferRequest:
    tensors: dict[str, NDArray[Any]]
    outputs: list[Wanted] | None  # None asks for all
    binary: bool  # for outputs not named one by one
    id: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def all_binary(self) -> bool:
        """Whether no numbers will have to be written as text."""
        return self.binary if self.outputs is None else all(w.binary for w in self.outputs)


def read_infer(body: Body, header_length: str | None, max_elements: int) -> InferRequest:
    """A whole infer request; `header_length` is there when binary tensors follow the JSON."""
    size = len(body)
    if header_length is not None:
        if not (header_length.isascii() and header_length.isdigit()) or len(header_length) > 18:
            raise BadRequest(f"{HEADER_LENGTH} must be a whole number, got {header_length[:40]!r}")
        size = int(header_length)
        if size > len(body):
            raise BadRequest(f"{HEADER_LENGTH} is {size}, but the body has {len(body)} bytes")
    root = _parse(body if size == len(body) else body[:size])
    tail = memoryview(body)[size:]
    inputs = root.get("inputs")
    if not isinstance(inputs, _ARRAY) or len(inputs) == 0:
        raise BadRequest("inputs must be an array of tensors")
    tensors: dict[str, NDArray[Any]] = {}
    offset = 0
    for index, entry in enumerate(inputs):
        if not isinstance(entry, _OBJECT):
            raise BadRequest(f"inputs[{index}] must be an object")
        name, array, used = _tensor(entry, f"inputs[{index}]", tail[offset:], max_elements)
        if name in tensors:
            raise BadRequest(f"input {name[:80]!r} appears twice")
        tensors[name] = array
        offset += used
    if offset != len(tail):
        raise BadRequest(f"{len(tail) - offset} bytes follow the last binary tensor")
    parameters = _parameters(root, "the request")
    binary = flag_of(parameters, "binary_data_output")
    return InferRequest(tensors, _outputs(root, binary), binary, _identifier(root), parameters)


def _parse(head: Body) -> Any:
    """The JSON; a short one, which has few numbers in it, as objects that are quickly asked."""
    if len(head) <= _SHORT:
        with contextlib.suppress(orjson.JSONDecodeError):
            root = orjson.loads(head)
            if isinstance(root, dict):
                return root
    return Document(head).root  # which can say what is wrong


def _tensor(
    entry: Any, path: str, tail: memoryview, max_elements: int
) -> tuple[str, NDArray[Any], int]:
    name = _string(entry, "name", path)
    kind = _string(entry, "datatype", path)
    dtype = DTYPES.get(kind)
    if dtype is None:
        known = ", ".join(DTYPES)
        raise BadRequest(f"{path}.datatype must be one of {known}; got {kind[:40]!r}")
    shape = _shape(entry.get("shape"), path, max_elements)
    count = math.prod(shape)
    parameters = _parameters(entry, path)
    if "shared_memory_region" in parameters:
        raise BadRequest(f"{path}: shared memory is not supported; send the bytes")
    if "binary_data_size" in parameters:
        size = parameters["binary_data_size"]
        want = count * dtype.itemsize
        if size != want or isinstance(size, bool) or not isinstance(size, int):
            raise BadRequest(f"{path}.parameters.binary_data_size must be {want}, got {size!r}")
        if size > len(tail):
            raise BadRequest(f"{path} needs {size} bytes, but {len(tail)} are left in the body")
        return name, np.frombuffer(tail[:size], dtype).reshape(shape), size
    data = entry.get("data")
    if not isinstance(data, _ARRAY):
        raise BadRequest(f"{path} must have data, or parameters.binary_data_size")
    whole = dtype.kind in "iu"
    try:
        if isinstance(data, list):
            data = simdjson.Parser().parse(orjson.dumps(data))
        flat = np.frombuffer(
            data.as_buffer(of_type="i" if whole else "d"), np.int64 if whole else np.float64
        )
    except (TypeError, ValueError, RuntimeError):
        raise BadRequest(f"{path}.data must hold {kind} numbers only") from None
    if flat.size != count:
        raise BadRequest(f"{path}.data must hold {count} numbers for {shape}, got {flat.size}")
    return name, flat.reshape(shape), 0


def _shape(value: Any, path: str, max_elements: int) -> list[int]:
    if not isinstance(value, _ARRAY) or not 1 <= len(value) <= 8:
        raise BadRequest(f"{path}.shape must be an array of 1 to 8 sizes")
    shape: list[int] = []
    for size in value:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= max_elements:
            raise BadRequest(
                f"{path}.shape must hold whole numbers from 0 to {max_elements}, "
                f"got {str(size)[:40]}"
            )
        shape.append(size)
    if math.prod(shape) > max_elements:
        raise BadRequest(f"{path}.shape has more than {max_elements} elements")
    return shape


def _outputs(root: Any, binary: bool) -> list[Wanted] | None:
    outputs = root.get("outputs")
    if outputs is None:
        return None
    if not isinstance(outputs, _ARRAY):
        raise BadRequest("outputs must be an array")
    wanted = []
    for index, entry in enumerate(outputs):
        path = f"outputs[{index}]"
        if not isinstance(entry, _OBJECT):
            raise BadRequest(f"{path} must be an object")
        parameters = _parameters(entry, path)
        if "shared_memory_region" in parameters:
            raise BadRequest(f"{path}: shared memory is not supported")
        if parameters.get("classification"):
            raise BadRequest(f"{path}: classification is not supported; ask for probabilities")
        name = _string(entry, "name", path)
        wanted.append(Wanted(name, flag_of(parameters, "binary_data", binary, f"{path}.")))
    return wanted or None


def _parameters(entry: Any, path: str) -> dict[str, Any]:
    value = entry.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, _OBJECT):
        raise BadRequest(f"{path}: parameters must be an object")
    return value if isinstance(value, dict) else dict(value.as_dict())


def flag_of(parameters: dict[str, Any], name: str, usual: bool = False, path: str = "") -> bool:
    """A parameter that is true or false and nothing else: "false" would count as true."""
    value = parameters.get(name, usual)
    if not isinstance(value, bool):
        raise BadRequest(f"{path}parameters.{name} must be true or false")
    return value


def _string(entry: Any, key: str, path: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"{path}.{key} must be a string that is not empty")
    return value


def _identifier(root: Any) -> str | None:
    value = root.get("id")
    if value is not None and not isinstance(value, str):
        raise BadRequest("id must be a string")
    return value


def datatype(array: NDArray[Any]) -> str:
    """Its type in the protocol's words."""
    return _NAMES[array.dtype]


def write_infer(
    facts: dict[str, Any], arrays: dict[str, NDArray[Any]], request: InferRequest
) -> tuple[bytes, int | None]:
    """The body, and the length of its JSON part when binary tensors follow."""
    wanted = request.outputs or [Wanted(name, request.binary) for name in arrays]
    outputs: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for want in wanted:
        array = arrays[want.name]
        entry: dict[str, Any] = {
            "name": want.name,
            "shape": list(array.shape),
            "datatype": datatype(array),
        }
        if want.binary:
            tail.append(array.tobytes())
            entry["parameters"] = {"binary_data_size": array.nbytes}
        else:
            entry["data"] = np.ascontiguousarray(array).reshape(-1)
        outputs.append(entry)
    if request.id is not None:
        facts = {**facts, "id": request.id}
    head = orjson.dumps({**facts, "outputs": outputs}, option=orjson.OPT_SERIALIZE_NUMPY)
    if not tail:
        return head, None
    return b"".join([head, *tail]), len(head)


def compress(body: bytes, accept_encoding: str) -> tuple[bytes, str | None]:
    """The body in the first encoding both sides know."""
    for item in accept_encoding.lower().split(","):
        name = item.partition(";")[0].strip()
        if name in ("gzip", "deflate") and "q=0" not in item.replace(" ", "").replace("q=0.", ""):
            window = zlib.MAX_WBITS | 16 if name == "gzip" else zlib.MAX_WBITS
            packer = zlib.compressobj(1, zlib.DEFLATED, window)
            return packer.compress(body) + packer.flush(), name
    return body, None
