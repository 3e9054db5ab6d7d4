"""The recipe of `bodies-any`: `python -m model.anymesh all DATA OUT`, or one step at a time."""

import argparse
import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.anymesh.evaluate import (
    Case,
    Judge,
    Result,
    ask,
    calibrate,
    draw_cases,
    restlessness,
    score,
)
from model.anymesh.people import FILE as PEOPLE
from model.anymesh.people import make_people
from model.anymesh.reference import load_reference, load_tables
from model.anymesh.samples import make_samples
from model.anymesh.serve import ServedAnyMesh
from model.anymesh.topologies import FILE as TOPOLOGIES
from model.anymesh.topologies import load_topologies, make_topologies
from model.anymesh.train import RECIPES, load_net, train
from model.datasets.bodies import TEMPLATE
from model.export import load_script, scripted
from model.serving import serve
from model.zoo import ZooEntry, read_entry, read_zoo, write_zoo

SHOWN = 15  # of the people kept aside: the sample, with 5,000 vertices, y up
DOUBT = 0.5  # people come out at 0.96 and more, balls, boxes and blobs at 0.4 and less


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
    """Train both networks, or go on from their checkpoints in OUT."""
    for part, recipe in RECIPES.items():
        if given.part in (None, part):
            if given.steps is not None:
                recipe = replace(recipe, steps=given.steps)
            train(given.data, given.out, part, recipe, given.stop_at)


def ship(given: Namespace) -> None:
    """Write the checkpoints into the zoo, their confidences calibrated on people kept aside."""
    net, judge = load_net(given.data, given.out), Judge(load_reference(given.data))
    served = ServedAnyMesh(net).eval()
    results = [
        ask(served, case, judge) for _, case in cases(given.data, "validation", given.people)
    ]
    calibration = round(calibrate(results, net.calibration), 4)
    given.zoo.mkdir(parents=True, exist_ok=True)
    with np.load(TEMPLATE) as file:
        np.savez_compressed(
            given.zoo / "reference.npz", vertices=file["vertices"], faces=file["faces"]
        )
    sample = json.dumps(_sample(given.data), separators=(",", ":"))
    (given.zoo / "sample.json").write_text(sample)
    entry = ZooEntry(
        name="bodies-any",
        net="any-mesh",
        parameters={"calibration": calibration},
        pseudo="cartesian",
        description="Human bodies in any triangulation to the 6,890 vertices of the reference.",
        reference="reference.npz",
        attributes="attributes.json" if (given.zoo / "attributes.json").exists() else None,
        doubt=DOUBT,
        default=True,
        data={"people": "anny 0.6.2", "recipe": {n: asdict(r) for n, r in RECIPES.items()}},
    )
    write_zoo(given.zoo, entry, net.state_dict())


def _sample(data: Path) -> dict[str, Any]:
    topology = load_topologies(data, "test")[2]
    x, y, z = draw_cases(data, topology, SHOWN + 1, "validation")[SHOWN].standing.T
    turned = np.column_stack([x, z, -y]).astype(np.float64)
    return {"mesh": {"vertices": turned.round(4).tolist(), "faces": topology.faces.tolist()}}


def measure(given: Namespace) -> None:
    """Score the zoo's network on unseen people and triangulations; draw the pictures."""
    from model.anymesh.pictures import draw_curves, draw_errors

    judge = Judge(load_reference(given.data))
    served = load_script(scripted(serve(read_zoo(given.zoo)[1])))
    kept: list[Case] = []
    shifts: list[NDArray[np.float64]] = []
    alone: dict[str, list[Result]] = {}
    refined: dict[str, list[Result]] = {}
    for name, case in cases(given.data, given.split, given.people):
        kept.append(case)
        if name not in alone:
            shifts.append(restlessness(served, case, judge))
        alone.setdefault(name, []).append(ask(served, case, judge))
        refined.setdefault(name, []).append(ask(served, case, judge, refine=True))
    scores = {name: [_short(alone[name]), _short(refined[name])] for name in alone}
    for name, both in scores.items():
        print(f"{name:24}", *(json.dumps(one) for one in both), flush=True)
    everything = [result for results in alone.values() for result in results]
    everything_refined = [result for results in refined.values() for result in results]
    total = {"alone": _short(everything), "refined": _short(everything_refined)}
    shift = np.concatenate(shifts)
    moved = {
        "mean": round(float(shift.mean()), 3),
        "over 3, %": round(100 * float((shift > 3).mean()), 3),
    }
    print(json.dumps({**total, "moved": moved}), flush=True)
    if given.split == "test":
        by_mesh = {name: [a["error"], b["error"]] for name, (a, b) in scores.items()}
        entry = replace(
            read_entry(given.zoo),
            scores={
                **total,
                "moved": moved,
                "meshes": len(kept),
                "error, alone and refined": by_mesh,
            },
        )
        (given.zoo / "model.json").write_text(
            json.dumps({"task": entry.task, **asdict(entry)}, indent=2, ensure_ascii=False) + "\n"
        )
        lines = {"network alone": everything, "refined": everything_refined}
        draw_curves(lines, given.zoo / "princeton.png")
        draw_errors(kept, everything, given.zoo / "errors.png")


def cases(data: Path, split: str, people: int) -> Iterator[tuple[str, Case]]:
    """Every test triangulation of the first people of a split, whole and worn."""
    for topology in load_topologies(data, "test"):
        for worn in (False, True):
            name = f"{len(topology.corner)} vertices{', worn' if worn else ''}"
            for case in draw_cases(data, topology, people, split, worn):
                yield name, case


def _short(results: list[Result]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in asdict(score(results)).items()}


def everything(given: Namespace) -> None:
    """All of it, one after the other."""
    for step in (data, learn, ship, measure):
        step(given)


STEPS: dict[str, Any] = {
    "data": data, "train": learn, "zoo": ship, "evaluate": measure, "all": everything,
}  # fmt: skip


def parse(arguments: list[str] | None = None) -> Namespace:
    parser = argparse.ArgumentParser(prog="python -m model.anymesh", description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("data", type=Path, help="where people and samples are kept")
    parser.add_argument("out", type=Path, nargs="?", default=Path("run"), help="checkpoints")
    parser.add_argument("--shards", type=int, default=210, help="of a hundred samples each")
    parser.add_argument("--part", choices=RECIPES, help="train only this network")
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    parser.add_argument("--stop-at", type=int, help="leave off after this step")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--people", type=int, default=20, help="meshes per triangulation")
    parser.add_argument("--zoo", type=Path, default=Path("zoo/bodies-any"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parse()
    STEPS[given.step](given)
