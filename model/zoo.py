"""Trained networks as they lie in the repository: `model.json` and `weights.safetensors`."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import nn

from model.anymesh.net import AnyMeshNet
from model.errors import BundleError
from model.graph import CORRESPONDENCE, GRAPH_LABEL, NODE_LABELS
from model.nets import CorrespondenceNet, GridNet, NodeNet, SuperpixelNet
from model.pseudo import CARTESIAN
from model.tasks import GRID, SUPERPIXELS

NETS: dict[str, tuple[type[nn.Module], str]] = {
    "correspondence": (CorrespondenceNet, CORRESPONDENCE),
    "any-mesh": (AnyMeshNet, CORRESPONDENCE),
    "node": (NodeNet, NODE_LABELS),
    "superpixels": (SuperpixelNet, GRAPH_LABEL),
    "grid": (GridNet, GRAPH_LABEL),
}
"""What `net` in model.json may be, and the task each network is for."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class ZooEntry:
    """model.json: everything about a trained network but its weights."""

    name: str
    net: str  # one of NETS
    parameters: dict[str, Any]  # how to call it
    pseudo: str  # the pseudo-coordinates it was trained with
    description: str = ""
    version: str = "1"
    labels: list[str] | None = None  # names of the classes
    image: str | None = None  # how an image becomes a graph: "superpixels", "grid" or not at all
    reference: str | None = None  # for correspondence: the file beside this one, .ply or .npz
    attributes: str | None = None  # landmarks and segments of the reference: a .json beside it
    doubt: float | None = None  # answers of a lower mean confidence carry a warning
    default: bool = False  # answers its task when a request names no model
    data: dict[str, Any] = field(default_factory=dict)  # what it was trained and tested on
    seed: int = 0
    scores: dict[str, Any] = field(default_factory=dict)  # as measured from these weights

    def __post_init__(self) -> None:
        for what in ("name", "version"):
            check_name(getattr(self, what), what)
        if self.net not in NETS:
            raise BundleError(f"net must be one of {', '.join(NETS)}, got {self.net!r}")
        if not isinstance(self.parameters, dict):
            raise BundleError(f"parameters must be an object, got {self.parameters!r}")
        if self.image not in (None, SUPERPIXELS, GRID):
            raise BundleError(f"image must be superpixels, grid or null, got {self.image!r}")
        for what in ("reference", "attributes"):
            if getattr(self, what) is not None:
                check_name(getattr(self, what), what)
        if self.attributes is not None and self.reference is None:
            raise BundleError("attributes are of a reference mesh, and there is none")
        check_doubt(self.doubt)
        check_flag(self.default, "default")
        if self.task == CORRESPONDENCE and self.reference is None:
            raise BundleError("a correspondence network needs a reference mesh")

    @property
    def task(self) -> str:
        return NETS[self.net][1]

    def build(self) -> nn.Module:
        """The network, with weights still to be loaded."""
        parameters = dict(self.parameters)
        if self.net in ("superpixels", "node"):
            parameters["pseudo"] = self.pseudo
        elif self.pseudo != CARTESIAN:
            raise BundleError(f"pseudo of a {self.net} network cannot be {self.pseudo!r}")
        if isinstance(parameters.get("channels"), list):
            parameters["channels"] = tuple(parameters["channels"])
        try:
            return NETS[self.net][0](**parameters)
        except (TypeError, ValueError) as error:
            raise BundleError(f"parameters do not fit a {self.net} network: {error}") from None


def check_name(name: Any, what: str) -> str:
    """A name that is also safe as the name of a file or directory."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BundleError(f"{what} must be letters, digits, dot, dash or underscore, got {name!r}")
    return name


def check_doubt(doubt: Any) -> None:
    number = isinstance(doubt, int | float) and not isinstance(doubt, bool)
    if doubt is not None and not (number and 0 <= doubt <= 1):
        raise BundleError(f"doubt must be a number from 0 to 1 or null, got {doubt!r}")


def check_flag(value: Any, what: str) -> None:
    if not isinstance(value, bool):
        raise BundleError(f"{what} must be true or false, got {value!r}")


def write_zoo(
    directory: Path,
    entry: ZooEntry,
    weights: Mapping[str, torch.Tensor],
    half: bool = True,
) -> None:
    """Write weights.safetensors (as float16 if `half`) and then model.json, each in one step."""
    directory.mkdir(parents=True, exist_ok=True)
    kind = torch.float16 if half else torch.float32
    stored = {name: value.detach().cpu().to(kind).contiguous() for name, value in weights.items()}
    write_whole(directory / "weights.safetensors", safetensors.torch.save(stored))
    text = json.dumps({"task": entry.task, **asdict(entry)}, indent=2, ensure_ascii=False)
    write_whole(directory / "model.json", (text + "\n").encode())


def read_entry(directory: Path) -> ZooEntry:
    """Read and check model.json."""
    path = directory / "model.json"
    try:
        facts = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BundleError(f"{path} is missing") from None
    except ValueError as error:
        raise BundleError(f"{path} is not JSON: {error}") from None
    known = {f.name for f in fields(ZooEntry)}
    if not isinstance(facts, dict) or not {"name", "net", "parameters", "pseudo"} <= facts.keys():
        raise BundleError(f"{path} must be an object with name, net, parameters and pseudo")
    task = facts.pop("task", None)
    if unknown := facts.keys() - known:
        raise BundleError(f"{path} has unknown fields: {', '.join(sorted(unknown))}")
    entry = ZooEntry(**facts)
    if task not in (None, entry.task):
        raise BundleError(f"{path}: a {entry.net} network is for {entry.task}, not {task}")
    return entry


def read_zoo(directory: Path) -> tuple[ZooEntry, nn.Module]:
    """A trained network in float32, ready to answer."""
    entry = read_entry(directory)
    net = entry.build()
    load_weights(net, directory / "weights.safetensors")
    return entry, net.eval()


def load_weights(net: nn.Module, path: Path) -> None:
    """Fill a network from a safetensors file, or say how the two differ."""
    try:
        stored = safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise BundleError(f"{path} is missing") from None
    except (OSError, safetensors.SafetensorError) as error:
        raise BundleError(f"{path} cannot be read: {error}") from None
    expected = net.state_dict()
    for name in expected.keys() ^ stored.keys():
        place = "lacks" if name in expected else "has an unexpected"
        raise BundleError(f"{path} belongs to another network: it {place} {name}")
    for name, value in stored.items():
        if value.shape != expected[name].shape:
            raise BundleError(
                f"{path} belongs to another network: {name} is {list(value.shape)}, "
                f"not {list(expected[name].shape)}"
            )
        if not torch.isfinite(value).all():
            raise BundleError(f"{path} holds numbers that are not finite, in {name}")
    net.load_state_dict({name: value.float() for name, value in stored.items()})


def read_reference(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Vertices float32 [V, 3] and faces int64 [F, 3] of a .ply or .npz file, in their order."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                vertices, faces = arrays["vertices"], arrays["faces"]
        else:
            import trimesh  # slow to import, and serving does without

            mesh = trimesh.load_mesh(path, file_type=path.suffix[1:], process=False)
            vertices, faces = mesh.vertices, mesh.faces
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise BundleError(f"{path} is not a reference mesh: {error}") from None
    return np.array(vertices, np.float32), np.array(faces, np.int64)


def write_whole(path: Path, content: bytes) -> None:
    """A file that is never seen half written."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise BundleError(f"{path} could not be written: {error.strerror}") from None
