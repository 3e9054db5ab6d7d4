"""The upgrade promise: what callers, bundles and settings of the previous version said still holds.

`previous/` holds that version's OpenAPI, its bundles of three toy networks, what they answered to
their own samples, and the names of its settings and metrics. After a release, run
`python tests/trust/test_upgrade.py` once to make the present version the previous one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.bundle import open_bundle
from service.app import create_app
from service.metrics import Metrics
from service.settings import Settings
from tests.service.service_toys import Caller
from tests.trust.trust_results import Row, record

PREVIOUS = Path(__file__).parent / "previous"
MODELS = {
    "toy-body": "correspondence",
    "toy-nodes": "node-labels",
    "toy-superpixels": "graph-label",
}
rows: list[Row] = []
same: set[str] = set()  # the old bundles that answer as before
_WORDS = {"description", "summary", "example", "examples", "title", "operationId", "tags"}


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    yield
    record("upgrade", [*rows, tell(same)])


def tell(same: set[str]) -> Row:
    found = f"{len(same)} of {len(MODELS)} open and give the same answers"
    return Row("bundles of the previous version", found, "all", len(same) == len(MODELS))


def test_a_bundle_that_answers_otherwise_is_told() -> None:
    assert tell({"toy-body"}).found == "1 of 3 open and give the same answers"
    assert not tell({"toy-body"}).met and tell(set(MODELS)).met


def read(name: str) -> Any:
    return json.loads((PREVIOUS / name).read_text())


def openapi() -> dict[str, Any]:
    return json.loads(json.dumps(create_app(Settings(models=PREVIOUS / "models")).openapi()))


def losses(old: Any, new: Any, path: str, *, sent: bool) -> Iterator[str]:
    """What a caller of the old document would miss in the new one.

    `sent` tells which way a schema points: callers send less than a request allows and read more
    than an answer used to hold, so new requirements break requests and lost ones break answers.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        if {"anyOf", "oneOf"} & (old.keys() | new.keys()):
            yield from _lost_choices(old, new, path, sent)
            return
        for key, value in old.items():
            if key in _WORDS:
                continue
            if key == "required" and isinstance(value, list):
                continue  # below, for it may also be missing
            if key == "parameters" and isinstance(value, list):  # not a field of that name
                yield from _lost_parameters(value, new.get(key, []), path)
            elif key == "enum":
                gone = set(value) - set(new.get(key, value))
                yield from (f"{path}: {item!r} is no longer one of the choices" for item in gone)
            elif key not in new:
                limits = key.startswith(("max", "min", "exclusive")) or key == "default"
                if not (limits and sent):  # a limit that fell lets through all that passed before
                    yield f"{path}.{key} is gone"
            else:
                inside = sent or key == "requestBody"
                yield from losses(value, new[key], f"{path}.{key}", sent=inside)
        if sent:
            fresh = set(_demands(new)) - set(_demands(old))
            yield from (f"{path}: {name} is demanded now" for name in sorted(fresh))
        else:
            unsure = set(_demands(old)) - set(_demands(new))
            yield from (f"{path}: {name} is no longer sure" for name in sorted(unsure))
        return
    if old != new:
        if isinstance(old, int | float) and isinstance(new, int | float) and sent:
            key = path.rpartition(".")[2]
            if (key.startswith("max") and new >= old) or (key.startswith("min") and new <= old):
                return
        yield f"{path} was {old!r}, is {new!r}"


def _choices(schema: dict[str, Any]) -> list[Any]:
    return schema.get("anyOf") or schema.get("oneOf") or [schema]


def _lost_choices(old: dict[str, Any], new: dict[str, Any], path: str, sent: bool) -> Iterator[str]:
    """Each old form of a request must still be taken; no new form may come in an answer."""
    kept, given = (_choices(old), _choices(new)) if sent else (_choices(new), _choices(old))
    for choice in kept:
        if not any(
            not list(losses(*((choice, other) if sent else (other, choice)), path, sent=sent))
            for other in given
        ):
            word = "no longer taken" if sent else "a form that callers do not know"
            yield f"{path}: {choice} is {word}"


def _demands(schema: dict[str, Any]) -> list[str]:
    names = schema.get("required", [])
    return names if isinstance(names, list) else []  # in a parameter it is true or false


def _lost_parameters(old: list[Any], new: list[Any], path: str) -> Iterator[str]:
    found = {(entry["in"], entry["name"]): entry for entry in new}
    for entry in old:
        where = f"{path}.{entry['name']}"
        if (entry["in"], entry["name"]) not in found:
            yield f"{where} is gone"
            continue
        yield from losses(entry, found[entry["in"], entry["name"]], where, sent=True)
    known = {(entry["in"], entry["name"]) for entry in old}
    for key, entry in found.items():
        if entry.get("required") and key not in known:
            yield f"{path}.{entry['name']} is demanded now"


def all_losses(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Of the whole document: routes, and each schema in the direction in which it travels."""
    lost = list(losses(old["paths"], new["paths"], "paths", sent=False))
    sent = _reached(old, old["paths"], only_sent=True)
    for name, schema in old["components"]["schemas"].items():
        now = new["components"]["schemas"].get(name)
        if now is None:
            lost.append(f"schema {name} is gone")
            continue
        lost += losses(schema, now, name, sent=name in sent)
    return lost


def _reached(tree: dict[str, Any], part: Any, *, only_sent: bool) -> set[str]:
    """Names of the schemas that requests refer to, directly or through others."""
    names: set[str] = set()

    def walk(node: Any, inside: bool) -> None:
        if isinstance(node, dict):
            if inside and isinstance(node.get("$ref"), str):
                name = node["$ref"].rpartition("/")[2]
                if name not in names:
                    names.add(name)
                    walk(tree["components"]["schemas"][name], True)
            for key, value in node.items():
                walk(value, inside or not only_sent or key == "requestBody")
        elif isinstance(node, list):
            for value in node:
                walk(value, inside)

    walk(part, not only_sent)
    return names


def test_the_openapi_document_takes_and_gives_all_it_did_before() -> None:
    old, new = read("openapi.json"), openapi()
    assert all_losses(old, new) == []
    routes = sum(len(methods) for methods in old["paths"].values())
    schemas = len(old["components"]["schemas"])
    rows.append(
        Row(f"{routes} routes and {schemas} schemas of the previous OpenAPI", "0 lost", "0")
    )


def test_a_document_is_compatible_with_itself_and_with_additions() -> None:
    new = openapi()
    assert all_losses(new, new) == []
    more = json.loads(json.dumps(new))
    more["paths"]["/v3/new"] = {}
    more["components"]["schemas"]["Correspondence"]["properties"]["extra"] = {"type": "string"}
    more["components"]["schemas"]["GraphBody"]["properties"]["extra"] = {"type": "string"}
    assert all_losses(new, more) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["paths"].pop("/v1/correspondence"), "/v1/correspondence is gone"),
        (lambda d: d["paths"]["/v1/graph-label"].pop("post"), "post is gone"),
        (
            lambda d: d["components"]["schemas"]["Correspondence"]["properties"].pop("confidence"),
            "confidence is gone",
        ),
        (
            lambda d: d["components"]["schemas"]["GraphBody"]["required"].append("positions"),
            "positions is demanded now",
        ),
        (
            lambda d: d["components"]["schemas"]["GraphLabel"]["required"].remove("label"),
            "label is no longer sure",
        ),
        (
            lambda d: d["components"]["schemas"]["Mesh"]["properties"]["faces"].update(type="int"),
            "was 'array', is 'int'",
        ),
        (
            lambda d: d["paths"]["/v1/node-labels"]["post"]["responses"].pop("429"),
            "429 is gone",
        ),
        (
            lambda d: d["paths"]["/v1/node-labels"]["post"]["parameters"].pop(),
            "X-Timeout-Ms is gone",
        ),
    ],
)
def test_what_would_break_callers_is_found(change: Any, message: str) -> None:
    new = openapi()
    broken = json.loads(json.dumps(new))
    change(broken)
    assert message in " ".join(all_losses(new, broken))


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """The present service on the previous version's bundles."""
    models = shutil.copytree(PREVIOUS / "models", tmp_path_factory.mktemp("old") / "models")
    caller = Caller(Settings(models=Path(models), threads=1, watch_seconds=0))
    yield caller
    caller.close()


def ask(api: Caller, name: str) -> dict[str, Any]:
    sample = json.loads((PREVIOUS / "models" / name / "1" / "sample.json").read_bytes())
    response = api.post(f"/v1/{MODELS[name]}", json={**sample, "model": name})
    assert response.status_code == 200, response.text
    answer = response.json()
    return {k: v for k, v in answer.items() if k not in ("request_id", "timings_ms")}


@pytest.mark.parametrize("name", MODELS)
def test_an_old_bundle_opens_and_answers_as_before(upgraded: Caller, name: str) -> None:
    manifest = open_bundle(PREVIOUS / "models" / name / "1").manifest
    written = json.loads((PREVIOUS / "models" / name / "1" / "manifest.json").read_bytes())
    for field, value in written.items():
        found = getattr(manifest, field)
        if field in ("inputs", "outputs"):
            found = [vars(spec) for spec in found]
        assert found == value, field
    expected, found = read("answers.json")[name], ask(upgraded, name)
    for field, value in expected.items():
        if _is_real(value):  # another processor may round otherwise
            np.testing.assert_allclose(found[field], value, atol=1e-5)
        else:
            assert found[field] == value, field
    same.add(name)


def _is_real(value: Any) -> bool:
    array = np.asarray(value) if isinstance(value, list | float) else None
    return array is not None and array.dtype.kind == "f"


def test_old_settings_and_metrics_keep_their_names() -> None:
    names = read("names.json")
    assert set(names["settings"]) <= set(Settings.model_fields)
    assert set(names["metrics"]) <= _metric_names()


def _metric_names() -> set[str]:
    found = {family.name for family in Metrics().registry.collect()}
    return {name for name in found if name.startswith("splinecnn_")}


def make_previous() -> None:
    """Take the present version down as the previous one."""
    from tests.toys import make_toy_bundles

    shutil.rmtree(PREVIOUS, ignore_errors=True)
    make_toy_bundles(PREVIOUS / "models", *MODELS, with_onnx=False)
    shutil.rmtree(PREVIOUS / "models-zoo")
    caller = Caller(Settings(models=PREVIOUS / "models", threads=1, watch_seconds=0))
    facts = {
        "openapi.json": openapi(),
        "answers.json": {name: ask(caller, name) for name in MODELS},
        "names.json": {"settings": list(Settings.model_fields), "metrics": sorted(_metric_names())},
    }
    caller.close()
    for name, value in facts.items():
        (PREVIOUS / name).write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    make_previous()
