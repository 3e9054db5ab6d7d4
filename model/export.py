"""From a trained network to a served bundle, proving on the way that all its forms agree."""

import io
import json
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from model.anymesh.net import AnyMeshNet
from model.attributes import FILE as ATTRIBUTES
from model.attributes import parse_attributes
from model.bundle import Manifest, TensorSpec, write_bundle
from model.errors import BundleError, InvalidGraph
from model.graph import CORRESPONDENCE, NODE_LABELS, Coordinates, Graph, pack
from model.request import request_graph
from model.samples import sample_request
from model.serving import OUTPUTS, coordinates_of, input_names, refines, serve
from model.zoo import ZooEntry, read_reference, read_zoo

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

TOLERANCE = 1e-4
"""How far apart two forms' probabilities may lie; a class ahead by more must be ahead in both."""

_SPECS = {
    "vertices": TensorSpec("vertices", "float32", [-1, 3]),
    "faces": TensorSpec("faces", "int64", [-1, 3]),
    "ptr": TensorSpec("ptr", "int64", [-1]),
    "top_k": TensorSpec("top_k", "int64", []),
    "refine": TensorSpec("refine", "int64", []),
    "feature_ptr": TensorSpec("feature_ptr", "int64", [-1]),
    "feature_index": TensorSpec("feature_index", "int64", [-1]),
    "feature_value": TensorSpec("feature_value", "float32", [-1]),
    "edge_index": TensorSpec("edge_index", "int64", [2, -1]),
    "positions": TensorSpec("positions", "float32", [-1, 2]),
    "index": TensorSpec("index", "int64", [-1, -1]),
    "confidence": TensorSpec("confidence", "float32", [-1, -1]),
}


def export_bundle(
    zoo: Path,
    repository: Path,
    with_onnx: bool = True,
    key: "Ed25519PrivateKey | None" = None,
) -> Path:
    """Turn `zoo/<name>/` into `<repository>/<name>/<version>/` and return that path.

    With a key the bundle is signed.

    Raises BundleError, and writes nothing, when eager, TorchScript and ONNX do not agree.
    """
    entry, net = read_zoo(zoo)
    files: dict[str, bytes] = {}
    reference = None
    if entry.reference is not None:
        reference = read_reference(zoo / entry.reference)
        files["reference.ply"] = _ply(*reference)
        if entry.attributes is not None:
            files[ATTRIBUTES] = _attributes(zoo / entry.attributes, len(reference[0]))
    num_classes, num_features = _sizes(entry, net)
    coordinates = coordinates_of(net)
    _check_facts(entry, num_classes, reference)
    sample = _sample(zoo / "sample.json")
    if sample is None:
        sample = sample_request(entry.task, entry.image, num_features, reference, coordinates)
    try:
        graph = request_graph(entry.task, sample, num_features, coordinates)
    except InvalidGraph as error:
        raise BundleError(f"the sample is not a valid request: {error}") from None
    files["sample.json"] = json.dumps(sample, separators=(",", ":")).encode()

    served = serve(net)
    files["model.ts"] = scripted(served)
    script = load_script(files["model.ts"])
    inputs = arguments([graph], top_k=min(2, num_classes), refine=1 if refines(served) else None)
    if refines(served):
        compare(run(served, inputs), run(script, inputs), "TorchScript, refined,")
        inputs["refine"] = 0
    expected = run(served, inputs)
    compare(expected, run(script, inputs), "TorchScript")
    # cells are cut by an operator of our own, which no ONNX runtime has
    if with_onnx and not isinstance(net, AnyMeshNet):
        try:
            from model.onnx_export import export_onnx, run_onnx
        except ModuleNotFoundError as error:
            raise BundleError(f"exporting needs {error.name}: pip install '.[onnx]'") from None
        files["model.onnx"] = export_onnx(net)
        compare(expected, run_onnx(files["model.onnx"], inputs), "ONNX Runtime")
    manifest = Manifest(
        name=entry.name,
        version=entry.version,
        task=entry.task,
        description=entry.description,
        labels=entry.labels,
        num_classes=num_classes,
        num_features=num_features,
        image=entry.image,
        reference=None if reference is None else len(reference[0]),
        scores=entry.scores,
        inputs=[
            _spec(name, num_features, num_classes, coordinates)
            for name in input_names(entry.task, refines(served), coordinates)
        ],
        outputs=[_spec(name, num_features, num_classes) for name in OUTPUTS[entry.task]],
        source={
            "net": entry.net,
            "parameters": entry.parameters,
            "pseudo": entry.pseudo,
            "data": entry.data,
            "seed": entry.seed,
        },
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        files={name: sha256(content).hexdigest() for name, content in files.items()},
        doubt=entry.doubt,
        default=entry.default,
    )
    return write_bundle(repository, manifest, files, key)


def arguments(
    graphs: Sequence[Graph], top_k: int = 1, refine: int | None = None
) -> dict[str, Tensor | int]:
    """What a served network is called with, by name and in order; `refine` where it is taken."""
    packed: dict[str, Tensor | int] = dict(pack(graphs))
    if graphs[0].task == CORRESPONDENCE:
        packed["top_k"] = top_k
        if refine is not None:
            packed["refine"] = refine
    return packed


def run(module: nn.Module, inputs: dict[str, Tensor | int]) -> list[np.ndarray]:
    with torch.inference_mode():
        return [output.numpy() for output in module(*inputs.values())]


def compare(expected: list[np.ndarray], found: list[np.ndarray], what: str) -> None:
    """Raise BundleError unless two forms of a network give the same answer."""
    best, probability, sure = _ranked(expected)
    other_best, other_probability, _ = _ranked(found)
    difference = float(np.abs(probability - other_probability).max(initial=0))
    if not difference <= TOLERANCE:
        raise BundleError(f"{what} differs from the network by {difference:.2g}; not exported")
    wrong = int(((best != other_best) & sure).sum())
    if wrong:
        raise BundleError(f"{what} names another class {wrong} times; not exported")


def _ranked(outputs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best class, all probabilities, and where the best is ahead by more than the tolerance."""
    probability = outputs[-1]
    best = outputs[0][:, 0] if len(outputs) == 2 else probability.argmax(1)
    if probability.shape[1] < 2:
        return best, probability, np.ones(len(best), bool)
    ranked = np.sort(probability, 1)
    return best, probability, ranked[:, -1] - ranked[:, -2] > TOLERANCE


def scripted(served: nn.Module) -> bytes:
    """The network as TorchScript, frozen: what depends on weights alone is computed here."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
        torch.jit.save(torch.jit.freeze(torch.jit.script(served)), buffer)
    return buffer.getvalue()


def load_script(model: bytes) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit
        module: nn.Module = torch.jit.load(io.BytesIO(model))
    return module


def _sample(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes()) if path.exists() else None
    except ValueError as error:
        raise BundleError(f"{path} is not JSON: {error}") from None


def _attributes(path: Path, vertices: int) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from None
    parse_attributes(content, vertices, str(path))
    return content


def _sizes(entry: ZooEntry, net: Any) -> tuple[int, int | None]:
    """The number of classes, and of features per node where a request has any."""
    if isinstance(net, AnyMeshNet):
        return net.landmark.size(0), None
    if entry.task == CORRESPONDENCE:
        return net.head.out_features, None
    if entry.task == NODE_LABELS:
        return net.second.bias.numel(), net.first.weight.size(1)
    return net.head.out_features, net.conv1.weight.size(1)


def _check_facts(entry: ZooEntry, num_classes: int, reference: Any) -> None:
    if entry.labels is not None and len(entry.labels) != num_classes:
        raise BundleError(f"the network has {num_classes} classes, but {len(entry.labels)} labels")
    if reference is not None and len(reference[0]) != num_classes:
        raise BundleError(
            f"the network has {num_classes} classes, but the reference {len(reference[0])} vertices"
        )


def _spec(
    name: str, num_features: int | None, num_classes: int, coordinates: Coordinates | None = None
) -> TensorSpec:
    if coordinates is not None and name == coordinates.name:
        return TensorSpec(name, "float32", [-1, coordinates.size])
    if name == "features":
        return TensorSpec(name, "float32", [-1, num_features or -1])
    if name == "probabilities":
        return TensorSpec(name, "float32", [-1, num_classes])
    return _SPECS[name]


def _ply(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    import trimesh  # slow to import, and serving does without

    mesh = trimesh.Trimesh(vertices, faces, process=False)
    content = mesh.export(file_type="ply")
    assert isinstance(content, bytes)
    return content
