"""The whole recipe of `bodies-any`, one step per command: data, samples, train, evaluate, zoo."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import load_file

from model.anymesh.evaluate import Judge, draw_cases, evaluate
from model.anymesh.net import AnyMeshNet
from model.anymesh.people import make_people
from model.anymesh.reference import load_reference, load_tables
from model.anymesh.samples import make_samples
from model.anymesh.serve import ServedAnyMesh
from model.anymesh.topologies import load_topologies, make_topologies
from model.anymesh.train import Recipe, train
from model.zoo import ZooEntry, write_zoo


def load_net(out: Path) -> AnyMeshNet:
    """The network of the last checkpoint."""
    tensors = load_file(out / "checkpoint.safetensors")
    net = AnyMeshNet()
    net.load_state_dict({n[4:]: t for n, t in tensors.items() if n.startswith("net.")})
    return net.eval()


def measure(data: Path, out: Path, people: int, split: str) -> dict[str, dict[str, float]]:
    """Scores per triangulation, whole and worn."""
    judge, served = Judge(load_reference(data)), ServedAnyMesh(load_net(out)).eval()
    scores = {}
    for topology in load_topologies(data, "test"):
        for worn in (False, True):
            cases = draw_cases(data, topology, people, split, worn)
            name = f"{len(topology.corner)}{' worn' if worn else ''}"
            scores[name] = asdict(evaluate(served, cases, judge))
            print(name, json.dumps(scores[name]), flush=True)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m model.anymesh", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in {
        "people": "pose people with anny",
        "topologies": "make triangulations, landmarks and distances",
        "samples": "make shards of training samples",
        "train": "train, or go on training",
        "evaluate": "measure the last checkpoint",
        "zoo": "measure it and write it into the zoo",
    }.items():
        command = commands.add_parser(name, help=words)
        command.add_argument("data", type=Path)
        if name == "samples":
            command.add_argument("--first", type=int, default=0)
            command.add_argument("--count", type=int, default=40)
        if name in ("train", "evaluate", "zoo"):
            command.add_argument("out", type=Path)
        if name in ("evaluate", "zoo"):
            command.add_argument("--people", type=int, default=12)
            command.add_argument("--split", default="test")
        if name == "zoo":
            command.add_argument("--zoo", type=Path, default=Path("zoo/bodies-any"))
        if name == "train":
            command.add_argument("--stop-at", type=int)
            for field, value in asdict(Recipe()).items():
                command.add_argument(
                    f"--{field.replace('_', '-')}", type=type(value), default=value
                )
    given = vars(parser.parse_args())
    run(given.pop("command"), **given)


def run(command: str, data: Path, **given: object) -> None:
    if command == "people":
        make_people(data)
    elif command == "topologies":
        make_topologies(data)
        load_tables(data)
        load_reference(data)
    elif command == "samples":
        make_samples(data, **given)  # type: ignore[arg-type]
    elif command == "train":
        out, stop_at = given.pop("out"), given.pop("stop_at")
        train(data, out, Recipe(**given), stop_at)  # type: ignore[arg-type]
    elif command == "evaluate":
        measure(data, **given)  # type: ignore[arg-type]
    else:
        zoo: Path = given.pop("zoo")  # type: ignore[assignment]
        scores = measure(data, **given)  # type: ignore[arg-type]
        entry = ZooEntry(
            name="bodies-any",
            net="any-mesh",
            parameters={},
            pseudo="cartesian",
            description="Human bodies in any triangulation to the 6,890 vertices of the reference.",
            reference="reference.npz",
            data={"people": "anny 0.6.2", "split": given["split"]},
            scores=scores,
        )
        write_zoo(zoo, entry, load_net(given["out"]).state_dict())  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
