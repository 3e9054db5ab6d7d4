"""The command line: answers, files, exit codes and messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import trimesh
from pydantic import ValidationError
from rich.console import Console

from service import cli
from service.predict import _headline
from service.settings import Settings
from tests.toys import make_nearest_bundle, make_toy_zoo


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def splinecnn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: a fresh one would spend seconds on importing torch."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["splinecnn", *map(str, arguments)])
        monkeypatch.setattr(cli, "_out", Console(width=200, highlight=False))
        monkeypatch.setenv("TERMINAL_WIDTH", "200")
        with pytest.raises(SystemExit) as left:
            cli.main()
        return Done(int(left.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def ball(tmp_path: Path) -> Path:
    trimesh.creation.icosphere(1).export(tmp_path / "ball.ply")
    return tmp_path / "ball.ply"


def test_help_lists_every_command(splinecnn: Command) -> None:
    shown = splinecnn("--help").stdout
    for command in (
        "serve",
        "predict",
        "models",
        "export",
        "train",
        "evaluate",
        "data",
        "bench",
        "sign",
        "doctor",
    ):
        assert f" {command} " in shown


def test_every_command_shows_an_example(splinecnn: Command) -> None:
    for command in cli.app.registered_commands:
        assert command.callback is not None
        shown = splinecnn(command.callback.__name__, "--help").stdout
        assert f"Example: splinecnn {command.callback.__name__}" in shown
    shown = splinecnn("--help").stdout
    assert "Example: splinecnn serve" in shown and "Exit codes: 0 done" in shown


@pytest.mark.parametrize(
    ("typed", "completed"), [("ev", "evaluate"), ("predict --aga", "--against")]
)
def test_tab_completes(typed: str, completed: str) -> None:
    asked = {"COMP_WORDS": f"splinecnn {typed}", "COMP_CWORD": str(len(typed.split()))}
    done = subprocess.run(
        [Path(sys.executable).parent / "splinecnn"],
        env={**os.environ, **asked, "_SPLINECNN_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [completed]


def test_serve_has_a_flag_for_every_setting(splinecnn: Command) -> None:
    shown = splinecnn("serve", "--help").stdout
    for name in Settings.model_fields:
        assert "--" + name.replace("_", "-") in shown


def test_predict_prints_the_services_answer(
    splinecnn: Command, toy_bundles: Path, ball: Path
) -> None:
    done = splinecnn("predict", ball, "--models", toy_bundles)
    answer = json.loads(done.stdout)
    assert len(answer["correspondence"]) == len(answer["confidence"]) == 42


def test_predict_writes_arrays_and_coloured_meshes(
    splinecnn: Command, toy_bundles: Path, ball: Path, tmp_path: Path
) -> None:
    for name in ("a.npy", "a.ply"):
        done = splinecnn("predict", ball, "--models", toy_bundles, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
    index = np.load(tmp_path / "a.npy")
    painted = trimesh.load(tmp_path / "a.ply", process=False).visual.vertex_colors
    for i, j in zip(*np.triu_indices(42, 1), strict=True):
        assert (index[i] == index[j]) <= (painted[i] == painted[j]).all()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.ply", None, "No such file"),
        ("notes.txt", b"hello", "cannot tell what .txt is"),
        ("bad.json", b"{", "not valid JSON"),
        ("other.json", b"[]", "must be an object with a mesh or a graph"),
        ("broken.ply", b"ply\nnonsense", "422"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_1(
    splinecnn: Command,
    toy_bundles: Path,
    tmp_path: Path,
    name: str,
    content: bytes | None,
    message: str,
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = splinecnn("predict", tmp_path / name, "--models", toy_bundles)
    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "99999"], "--port"),
        (["--runtime", "tea"], "--runtime"),
        (["--models", "nowhere"], "nowhere"),
        (["--device", "tpu"], "--device: must be cpu, cuda or cuda:<number>, got 'tpu'\n"),
    ],
)
def test_serve_refuses_what_it_cannot_do(
    splinecnn: Command, flags: list[str], message: str
) -> None:
    done = splinecnn("serve", *flags)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr


def test_a_wrong_setting_never_shows_a_key(
    splinecnn: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLINECNN_ADMIN_KEY", "topsecret")
    monkeypatch.setenv("SPLINECNN_API_KEYS", "callersecret")
    done = splinecnn("serve", "--tls-cert", "x.pem")
    assert done.returncode == 2
    assert done.stderr == "error: --tls-cert and --tls-key go together: set both or neither\n"
    done = splinecnn("serve", "--port", "99999", "--tls-cert", "x.pem")
    assert "--port: " in done.stderr and "got 99999" in done.stderr
    assert "secret" not in done.stderr
    with pytest.raises(ValidationError) as wrong:
        Settings(admin_key=["topsecret"])  # type: ignore[arg-type]
    assert cli._explain(wrong.value.errors()[0]) == "--admin-key: Input should be a valid string"


def test_models_lists_name_task_and_scores(splinecnn: Command, toy_bundles: Path) -> None:
    shown = splinecnn("models", "--models", toy_bundles).stdout
    assert "bodies" in shown and "correspondence" in shown and "exact 0.5" in shown


def test_grouped_scores_are_shown_by_their_first_number() -> None:
    scores = {"alone": {"error": 0.9, "worst": 2.0}, "by size": {"1000": [1, 2]}, "meshes": 240}
    assert _headline(scores) == "alone error 0.9, meshes 240"


def test_doctor_finds_bundles_and_says_what_is_wrong(
    splinecnn: Command, own_bundles: Path, tmp_path: Path
) -> None:
    assert splinecnn("doctor", "--models", own_bundles).returncode == 0
    (own_bundles / "cora" / "1" / "sample.json").write_text("{}")
    sick = splinecnn("doctor", "--models", own_bundles)
    assert sick.returncode == 1 and "sample.json" in sick.stdout
    empty = splinecnn("doctor", "--models", tmp_path)
    assert empty.returncode == 1 and "splinecnn export" in empty.stdout


def test_export_says_when_there_is_nothing_to_do(splinecnn: Command, tmp_path: Path) -> None:
    done = splinecnn("export", "--all", "--zoo", tmp_path)
    assert done.returncode == 1 and "nothing to export" in done.stderr


def test_export_takes_names_directories_or_the_whole_zoo(
    splinecnn: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoo = make_toy_zoo(tmp_path / "zoo", "toy-nodes", "toy-superpixels")
    asked: list[Path] = []

    def export(source: Path, out: Path, key: object) -> Path:
        asked.append(source)
        return out / source.name / "1"

    monkeypatch.setattr("model.export.export_bundle", export)
    for names, found in (
        (["--all"], ["toy-nodes", "toy-superpixels"]),
        (["toy-nodes"], ["toy-nodes"]),
        ([zoo / "toy-superpixels"], ["toy-superpixels"]),
    ):
        done = splinecnn("export", *names, "--zoo", zoo, "--out", tmp_path)
        assert done.returncode == 0, done.stderr
        assert asked == [zoo / name for name in found]
        asked.clear()


def test_models_says_when_there_are_none(splinecnn: Command, tmp_path: Path) -> None:
    done = splinecnn("models", "--models", tmp_path / "nowhere")
    assert done.returncode == 1 and "there are no bundles in" in done.stderr
    done = splinecnn("models", "--against", "http://127.0.0.1:1")
    assert done.returncode == 1 and done.stderr.startswith("error: cannot reach")


def test_long_work_shows_a_bar(
    splinecnn: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_err", Console(stderr=True, force_terminal=True, width=100))

    def work(*arguments: object) -> dict[str, object]:
        *_, progress = arguments
        progress(3, 4)  # type: ignore[operator]
        return {}

    monkeypatch.setattr("model.evaluate.evaluate", work)
    monkeypatch.setattr("model.train.prepare_data", work)
    for command in (["evaluate", tmp_path / "bodies"], ["data", "bodies"]):
        shown = splinecnn(*command).stderr
        assert "bodies" in shown and "75%" in shown
    assert "faust" in splinecnn("data", "--help").stdout


def test_train_refuses_an_unknown_task(splinecnn: Command, tmp_path: Path) -> None:
    done = splinecnn("train", "tea", "--data", tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 1 and "task must be one of" in done.stderr


def test_bench_times_every_model(splinecnn: Command, toy_bundles: Path, tmp_path: Path) -> None:
    done = splinecnn("bench", "--models", toy_bundles, "--seconds", "0.01")
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[1:]}
    assert {"bodies/1", "cora/1", "mnist-superpixels/1"} <= rows.keys()
    assert all(0 < float(row[2]) <= float(row[3]) for row in rows.values())
    assert splinecnn("bench", "--models", toy_bundles, "--runtime", "tea").returncode == 2
    assert "no bundles" in splinecnn("bench", "--models", tmp_path).stderr
    if not torch.cuda.is_available():
        refused = splinecnn("bench", "--models", toy_bundles, "--device", "cuda")
        assert refused.returncode == 2 and "cuda" in refused.stderr


def test_predict_includes_and_paints_segments_and_warns(
    splinecnn: Command, ball: Path, tmp_path: Path
) -> None:
    sphere = trimesh.creation.icosphere(1, radius=1.1)
    north = [int(z > 0) for z in sphere.vertices[:, 2]]
    attributes = {"segments": {"names": ["south", "north"], "of_vertex": north}}
    make_nearest_bundle(tmp_path / "bundles", sphere, attributes, doubt=0.8)
    flags = ["--models", tmp_path / "bundles", "--include", "segments, points"]
    plain = splinecnn("predict", ball, *flags)
    answer = json.loads(plain.stdout)
    assert "warning" not in answer and not plain.stderr
    assert set(answer["segments"]["of_vertex"]) == {0, 1} and len(answer["points"]["face"]) == 42
    refined = splinecnn("predict", ball, *flags, "--refine", "--out", tmp_path / "parts.ply")
    assert refined.returncode == 0, refined.stderr
    assert "warning: this does not look like" in " ".join(refined.stderr.split())
    painted = trimesh.load(tmp_path / "parts.ply", process=False).visual.vertex_colors
    assert len(np.unique(painted, axis=0)) == 2
    for part in (0, 1):
        own = painted[np.array(answer["segments"]["of_vertex"]) == part]
        assert len(np.unique(own, axis=0)) == 1
    refused = splinecnn("predict", ball, "--models", tmp_path / "bundles", "--include", "landmarks")
    assert refused.returncode == 1 and "can include points, reverse, segments" in refused.stderr
