"""The recipe of `bodies-any`: `python -m model.anymesh all DATA OUT`, or one step at a time."""

import argparse
import json
from argparse import Namespace
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from model.anymesh.evaluate import Judge, draw_cases, evaluate
from model.anymesh.people import FILE as PEOPLE
from model.anymesh.people import make_people
from model.anymesh.reference import load_reference, load_tables
from model.anymesh.samples import make_samples
from model.anymesh.serve import ServedAnyMesh
from model.anymesh.topologies import FILE as TOPOLOGIES
from model.anymesh.topologies import load_topologies, make_topologies
from model.anymesh.train import Recipe, load_net, train
from model.datasets.bodies import TEMPLATE
from model.zoo import ZooEntry, write_zoo


def data(given: Namespace) -> None:
    """People, triangulations, landmarks and distances; what is there already is kept."""
    if not (given.data / PEOPLE).exists():
        make_people(given.data)
    if not (given.data / TOPOLOGIES).exists():
        make_topologies(given.data)
    load_tables(given.data)
    load_reference(given.data)
    make_samples(given.data, 0, given.shards)


def learn(given: Namespace) -> None:
    """Train, or go on from the checkpoint in OUT."""
    recipe = Recipe(**{field.name: getattr(given, field.name) for field in fields(Recipe)})
    train(given.data, given.out, recipe, given.stop_at)


def measure(given: Namespace) -> dict[str, Any]:
    """Score the checkpoint on unseen people and triangulations, whole and worn."""
    judge = Judge(load_reference(given.data))
    net = load_net(given.out, given.clusterings, given.smoothing)
    served = ServedAnyMesh(net).eval()
    scores = {}
    for topology in load_topologies(given.data, "test"):
        for worn in (False, True):
            cases = draw_cases(given.data, topology, given.people, given.split, worn)
            name = f"{len(topology.corner)} vertices{', worn' if worn else ''}"
            scores[name] = asdict(evaluate(served, cases, judge))
            print(name, json.dumps(scores[name]), flush=True)
    return scores


def ship(given: Namespace) -> None:
    """Score the checkpoint and write it into the zoo, with the scores."""
    entry = ZooEntry(
        name="bodies-any",
        net="any-mesh",
        parameters={"clusterings": given.clusterings, "smoothing": given.smoothing},
        pseudo="cartesian",
        description="Human bodies in any triangulation to the 6,890 vertices of the reference.",
        reference="reference.npz",
        data={"people": "anny 0.6.2", "split": given.split, "meshes each": given.people},
        scores=measure(given),
    )
    write_zoo(given.zoo, entry, load_net(given.out).state_dict())
    with np.load(TEMPLATE) as file:
        np.savez_compressed(
            given.zoo / "reference.npz", vertices=file["vertices"], faces=file["faces"]
        )


def everything(given: Namespace) -> None:
    """All of it, one after the other."""
    for step in (data, learn, ship):
        step(given)


STEPS = {"data": data, "train": learn, "evaluate": measure, "zoo": ship, "all": everything}


def parse(arguments: list[str] | None = None) -> Namespace:
    parser = argparse.ArgumentParser(prog="python -m model.anymesh", description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("data", type=Path, help="where people and samples are kept")
    parser.add_argument("out", type=Path, nargs="?", default=Path("run"), help="checkpoints")
    parser.add_argument("--shards", type=int, default=60, help="of a hundred samples each")
    parser.add_argument("--stop-at", type=int, help="leave off after this step")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--people", type=int, default=12, help="meshes per triangulation")
    parser.add_argument("--clusterings", type=int, default=1, help="averaged when answering")
    parser.add_argument("--smoothing", type=int, default=0, help="steps over mesh neighbours")
    parser.add_argument("--zoo", type=Path, default=Path("zoo/bodies-any"))
    for name, value in asdict(Recipe()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parse()
    STEPS[given.step](given)
