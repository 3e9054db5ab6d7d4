"""Coverage-guided fuzzing, one target per run: `python fuzz_target.py NAME [libFuzzer options]`.

Each target calls one decoder of ours on arbitrary bytes; an error that is not one of the errors it
may raise ends the run with a crash file. Run by `test_coverage_fuzz.py`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["service", "model"]):
    from model.bundle import open_bundle
    from model.errors import SplineCNNError
    from model.signing import check_signature
    from service import images, meshfiles, oip
    from service.body import inflate
    from service.errors import Refusal
    from service.inputs import read_question
    from service.models import Model
    from service.settings import Settings

import pydantic

LAWFUL = (Refusal, SplineCNNError, pydantic.ValidationError)
LIMIT = 1 << 16
_settings = Settings(max_nodes=1000, max_edges=4000, max_faces=2000)
_folder = Path(tempfile.mkdtemp(prefix="fuzz-bundle-"))


@cache
def _model(task: str) -> Model:
    """One of the previous version's bundles, for the decoders ask a model what it takes."""
    names = {
        "correspondence": "toy-body",
        "node-labels": "toy-nodes",
        "graph-label": "toy-superpixels",
    }
    folder = Path(__file__).parent / "previous" / "models" / names[task] / "1"
    return Model(open_bundle(folder), Settings(threads=1))


def codec(data: bytes) -> None:
    tasks = ("correspondence", "node-labels", "graph-label")
    task = tasks[data[0] % 3]
    read_question(task, data[1:], "application/json", {}, _settings, lambda *_: _model(task))


def tensors(data: bytes) -> None:
    length = str(int.from_bytes(data[:2], "little")) if data[0] % 2 else None
    oip.read_infer(data[2:], length, LIMIT)


def compressed(data: bytes) -> None:
    inflate(data[1:], 31 if data[0] % 2 else 15, LIMIT)


def mesh(data: bytes) -> None:
    kind = meshfiles.FORMATS[data[0] % len(meshfiles.FORMATS)]
    meshfiles.read_mesh(data[1:], kind, 1000, 2000)


def image(data: bytes) -> None:
    images.read_image(data[1:], "PNG" if data[0] % 2 else "JPEG", 10_000)


def bundle(data: bytes) -> None:
    (_folder / "manifest.json").write_bytes(data)
    (_folder / "model.ts").write_bytes(b"network")
    open_bundle(_folder)


def signature(data: bytes) -> None:
    (_folder / "manifest.sig").write_bytes(data)
    check_signature(_folder, b"{}", ["A" * 43 + "="])


TARGETS: dict[str, Callable[[bytes], None]] = {
    f.__name__: f for f in (codec, tensors, compressed, mesh, image, bundle, signature)
}


def main() -> None:
    target = TARGETS[sys.argv.pop(1)]

    def once(data: bytes) -> None:
        if len(data) < 2:
            return
        try:
            target(data)
        except LAWFUL:
            return

    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
