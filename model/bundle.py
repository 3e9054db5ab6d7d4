"""Bundles: what a model is served from, a directory whose every file is vouched for by its hash."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.attributes import FILE as ATTRIBUTES
from model.attributes import Attributes, parse_attributes
from model.errors import BundleError
from model.graph import NODE_LABELS, POSITIONS, PSEUDO, TASKS, Coordinates
from model.signing import SIGNATURE, check_signature, sign
from model.zoo import check_doubt, check_flag, check_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = 1
MANIFEST = "manifest.json"
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True)
class TensorSpec:
    """One input or output: its name, dtype and shape, -1 where the size is free."""

    name: str
    dtype: str
    shape: list[int]


@dataclass(frozen=True)
class Manifest:
    """manifest.json: the facts about a bundle."""

    name: str
    version: str
    task: str
    description: str
    labels: list[str] | None
    num_classes: int
    num_features: int | None
    image: str | None  # how an image becomes a graph: "superpixels", "grid" or not at all
    reference: int | None  # vertices of the reference mesh, for correspondence
    scores: dict[str, Any]
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    source: dict[str, Any]  # network, parameters, data and seed it came from
    created: str
    files: dict[str, str]  # SHA-256 of each
    format: int = FORMAT
    doubt: float | None = None  # answers of a lower mean confidence carry a warning
    default: bool = False  # answers its task when a request names no model

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise BundleError(f"bundle format must be {FORMAT}, got {self.format!r}")
        for what in ("name", "version"):
            check_name(getattr(self, what), what)
        if self.task not in TASKS:
            raise BundleError(f"task must be one of {', '.join(TASKS)}, got {self.task!r}")
        if not isinstance(self.files, dict) or "model.ts" not in self.files:
            raise BundleError("files must name model.ts and the others with their SHA-256")
        for name in self.files:
            check_name(name, "a file name")
        if ATTRIBUTES in self.files and not self.reference:
            raise BundleError(f"{ATTRIBUTES} is of a reference mesh, and there is none")
        check_doubt(self.doubt)
        check_flag(self.default, "default")

    @property
    def refines(self) -> bool:
        """Whether the network can spend more time on a better answer."""
        return any(spec.name == "refine" for spec in self.inputs)

    @property
    def coordinates(self) -> Coordinates | None:
        """What a node network takes beside features and edges."""
        for spec in self.inputs:
            if self.task == NODE_LABELS and spec.name in (POSITIONS, PSEUDO):
                return Coordinates(spec.name, spec.shape[1])
        return None


@dataclass(frozen=True)
class Bundle:
    """A directory whose files were found to be what its manifest says."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """The path of a file the manifest vouches for."""
        if name not in self.manifest.files:
            raise BundleError(f"{self.path} holds no {name}")
        return self.path / name

    def read(self, name: str) -> bytes:
        """The content of a file, checked once more: it may have changed since it was opened."""
        try:
            content = self.file(name).read_bytes()
        except OSError as error:
            raise BundleError(f"{self.path / name} cannot be read: {error.strerror}") from None
        _check_hash(self.path / name, hashlib.sha256(content).hexdigest(), self.manifest)
        return content

    @cached_property
    def sample(self) -> dict[str, Any]:
        """A request, as JSON, that works."""
        sample: dict[str, Any] = json.loads(self.read("sample.json"))
        return sample

    @cached_property
    def attributes(self) -> Attributes | None:
        """Landmarks and segments of the reference, if it has any."""
        if ATTRIBUTES not in self.manifest.files:
            return None
        where = str(self.path / ATTRIBUTES)
        return parse_attributes(self.read(ATTRIBUTES), self.manifest.reference or 0, where)


def open_bundle(path: Path | str, trusted: Collection[str] = ()) -> Bundle:
    """Read the manifest and check every file against it; nothing is loaded before that.

    With trusted keys, the manifest itself must be signed by one of them.
    """
    path = Path(path)
    text = _read_manifest(path / MANIFEST)
    if trusted:
        check_signature(path, text, trusted)
    manifest = _parse_manifest(path / MANIFEST, text)
    for name in manifest.files:
        file = path / name
        if file.is_symlink() or not file.is_file():
            raise BundleError(f"{file} is missing, or not a plain file")
        _check_hash(file, hash_file(file), manifest)
    bundle = Bundle(path, manifest)
    _ = bundle.attributes  # wrong ones are told now, not to a caller
    return bundle


def _check_hash(file: Path, found: str, manifest: Manifest) -> None:
    expected = manifest.files[file.name]
    if found != expected:
        raise BundleError(
            f"{file} was altered: its SHA-256 is {found[:12]}…, the manifest says "
            f"{str(expected)[:12]}…; export the model again"
        )


def _read_manifest(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BundleError(f"{path} is missing: this is not a bundle") from None
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error}") from None


def _parse_manifest(path: Path, text: bytes) -> Manifest:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} cannot be read: {error}") from None
    names = {f.name for f in fields(Manifest)}
    needed = {f.name for f in fields(Manifest) if f.default is MISSING} | {"format"}
    if not isinstance(facts, dict) or not needed <= facts.keys() <= names:
        odd = needed - facts.keys() | facts.keys() - names if isinstance(facts, dict) else needed
        raise BundleError(f"{path} is not a manifest; check {', '.join(sorted(odd))}")
    try:
        for what in ("inputs", "outputs"):
            facts[what] = [TensorSpec(**spec) for spec in facts[what]]
    except TypeError as error:
        raise BundleError(f"{path} is not a manifest: {error}") from None
    return Manifest(**facts)


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bundle(
    repository: Path,
    manifest: Manifest,
    files: Mapping[str, bytes],
    key: "Ed25519PrivateKey | None" = None,
) -> Path:
    """Write `<repository>/<name>/<version>/` whole or not at all; replaces an older one.

    The hashes in `manifest.files` are those of `files`. Everything is written aside, on the same
    disk, and takes its place by renaming. With a key the manifest is signed.
    """
    final = Path(repository) / manifest.name / manifest.version
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".export-", dir=final.parent))
    except OSError as error:
        raise unwritable(final, error) from None
    try:
        for name, content in files.items():
            _write(aside / check_name(name, "a file name"), content)
        text = json.dumps(asdict(manifest), indent=2, ensure_ascii=False)
        _write(aside / MANIFEST, (text + "\n").encode())
        if key is not None:
            _write(aside / SIGNATURE, sign((text + "\n").encode(), key))
        aside.chmod(0o755)
        if final.exists():
            os.rename(final, aside / "replaced")
        os.rename(aside, final)
        shutil.rmtree(final / "replaced", ignore_errors=True)
    except OSError as error:
        raise unwritable(final, error) from None
    finally:
        if aside.exists():
            if (aside / "replaced").exists():
                os.rename(aside / "replaced", final)
            shutil.rmtree(aside, ignore_errors=True)
    return final


def unwritable(path: Path, error: OSError) -> BundleError:
    """Why a bundle could not be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return BundleError(f"{path} could not be written: the disk is full")
    cure = "; name a directory that may be written" if error.errno in _READ_ONLY else ""
    return BundleError(f"{path} could not be written: {error.strerror}{cure}")


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
