"""Bundles on disk to models in memory: versions, swaps, refusals, unloading."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from model.errors import BundleError
from model.signing import public_key, sign_bundle
from service.errors import Invalid, NotFound, NotReady
from service.metrics import Metrics
from service.repository import Repository
from service.settings import Settings

Make = Callable[..., Settings]


def open_repository(settings: Settings) -> Repository:
    repository = Repository(settings, Metrics())
    repository.load_all()
    return repository


def add_version(bundles: Path, name: str, version: str, *, like: str = "1") -> Path:
    """A newer version: the same files under another number."""
    target = bundles / name / version
    shutil.copytree(bundles / name / like, target)
    manifest = orjson.loads((target / "manifest.json").read_bytes())
    manifest["version"] = version
    (target / "manifest.json").write_bytes(orjson.dumps(manifest))
    return target


def test_the_newest_version_is_served_by_number_not_by_letter(
    own_bundles: Path, settings: Make
) -> None:
    for version in ("2", "10", "9"):
        add_version(own_bundles, "cora", version)
    repository = open_repository(settings(models=own_bundles))
    assert repository.get("cora").version == "10"
    with pytest.raises(NotFound, match="has no version '9'; served: 10"):
        repository.get("cora", "9")


def test_all_versions_can_be_served_side_by_side(own_bundles: Path, settings: Make) -> None:
    add_version(own_bundles, "cora", "2")
    repository = open_repository(settings(models=own_bundles, versions="all"))
    assert repository.get("cora", "1").version == "1"
    assert repository.get("cora").version == "2"
    assert repository.resolve("node-labels", "cora@1").version == "1"


def test_only_named_models_are_loaded(toy_bundles: Path, settings: Make) -> None:
    repository = open_repository(settings(only=["cora"]))
    assert [model.name for model in repository.models()] == ["cora"]


def test_a_new_version_on_disk_takes_over(own_bundles: Path, settings: Make) -> None:
    repository = open_repository(settings(models=own_bundles))
    old = repository.get("cora")
    add_version(own_bundles, "cora", "2")
    repository.refresh()
    assert repository.get("cora").version == "2"
    assert old.version == "1"  # whoever holds it can still run it
    states = {(e["name"], e["version"]): e["state"] for e in repository.index()}
    assert states["cora", "1"] == "UNAVAILABLE"
    assert states["cora", "2"] == "READY"


def test_a_bad_version_is_refused_and_the_old_one_kept(own_bundles: Path, settings: Make) -> None:
    repository = open_repository(settings(models=own_bundles))
    broken = add_version(own_bundles, "cora", "2")
    good = (broken / "model.ts").read_bytes()
    (broken / "model.ts").write_bytes(good[:-1] + b"!")
    repository.refresh()
    assert repository.get("cora").version == "1"
    entry = next(e for e in repository.index() if e["version"] == "2")
    assert entry["state"] == "UNAVAILABLE"
    assert "was altered" in entry["reason"]
    (broken / "model.ts").write_bytes(good)
    repository.refresh()
    assert repository.get("cora").version == "2"


def test_a_served_version_damaged_on_disk_goes_on_from_memory(
    own_bundles: Path, settings: Make
) -> None:
    repository = open_repository(settings(models=own_bundles))
    before = repository.get("cora")
    (own_bundles / "cora" / "1" / "model.ts").write_bytes(b"gone wrong")
    repository.refresh()
    assert repository.get("cora") is before
    entry = next(e for e in repository.index() if e["name"] == "cora")
    assert entry["state"] == "READY"
    assert "refused" in entry["reason"]


def test_a_bundle_deleted_on_disk_goes_on_from_memory(own_bundles: Path, settings: Make) -> None:
    repository = open_repository(settings(models=own_bundles))
    shutil.rmtree(own_bundles / "cora")
    repository.refresh()
    assert repository.get("cora").version == "1"


def test_an_older_version_is_served_if_the_newest_is_bad_from_the_start(
    own_bundles: Path, settings: Make
) -> None:
    good = (own_bundles / "cora" / "1" / "model.ts").read_bytes()
    for version in ("2", "3"):
        (add_version(own_bundles, "cora", version) / "model.ts").write_bytes(b"")
    repository = open_repository(settings(models=own_bundles))
    assert repository.get("cora").version == "1"
    (own_bundles / "cora" / "3" / "model.ts").write_bytes(good)
    repository.refresh()
    assert repository.get("cora").version == "3"
    repository.unload("cora")
    repository.refresh()
    with pytest.raises(NotFound):
        repository.get("cora")


def test_what_is_neither_on_disk_nor_served_is_not_listed(
    own_bundles: Path, settings: Make, caplog: pytest.LogCaptureFixture
) -> None:
    broken = add_version(own_bundles, "cora", "2")
    (broken / "model.ts").write_bytes(b"")
    repository = open_repository(settings(models=own_bundles))
    listed = {entry["name"] + entry["version"]: entry for entry in repository.index()}
    reason = listed["cora2"]["reason"]
    assert reason.startswith("refused: ") and str(own_bundles) not in reason
    shutil.rmtree(own_bundles / "cora")
    for _ in range(2):
        repository.refresh()
    assert {e["name"] + e["version"] for e in repository.index()} == listed.keys() - {"cora2"}
    told = [
        r
        for r in caplog.messages
        if r == "bundle cora/1 is gone from disk and served on from memory"
    ]
    assert len(told) == 1


def test_a_default_of_another_task_is_refused(own_bundles: Path, settings: Make) -> None:
    wrong = settings(models=own_bundles, default_models={"node-labels": "bodies"})
    with pytest.raises(BundleError, match="names 'bodies' for node-labels, but it answers corr"):
        open_repository(wrong)


def test_a_bundle_in_the_wrong_place_is_refused(own_bundles: Path, settings: Make) -> None:
    shutil.copytree(own_bundles / "cora", own_bundles / "impostor")
    repository = open_repository(settings(models=own_bundles))
    with pytest.raises(Invalid, match="its manifest says cora/1"):
        repository.load("impostor")


def test_unloading_frees_the_model_and_loading_brings_it_back(settings: Make) -> None:
    repository = open_repository(settings())
    memory = weakref.ref(repository.resolve("node-labels", None))
    repository.unload("cora")
    gc.collect()
    assert memory() is None
    with pytest.raises(NotFound, match="no model 'cora' is served here"):
        repository.get("cora")
    repository.refresh()  # what was unloaded on purpose stays away
    with pytest.raises(NotReady, match="no model for node-labels is loaded"):
        repository.resolve("node-labels", None)
    assert repository.load("cora").name == "cora"
    with pytest.raises(NotFound):
        repository.unload("nobody")


@pytest.mark.parametrize("name", ["..", "../cora", "/etc", "cora/1", ".hidden", "a\x00b"])
def test_names_cannot_leave_the_repository(settings: Make, name: str) -> None:
    repository = open_repository(settings())
    with pytest.raises(NotFound):
        repository.load(name)
    with pytest.raises(NotFound):
        repository.get(name)


def test_nothing_to_serve_is_an_error_that_says_why(own_bundles: Path, settings: Make) -> None:
    for name in ("bodies", "cora", "mnist-superpixels"):
        (own_bundles / name / "1" / "model.ts").write_bytes(b"")
    with pytest.raises(BundleError, match="can be served: .*model.ts was altered"):
        open_repository(settings(models=own_bundles))


def test_the_default_model_can_be_chosen(own_bundles: Path, settings: Make) -> None:
    shutil.copytree(own_bundles / "cora", own_bundles / "alpha")
    folder = own_bundles / "alpha" / "1"
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    manifest["name"] = "alpha"
    (folder / "manifest.json").write_bytes(orjson.dumps(manifest))
    repository = open_repository(settings(models=own_bundles))
    assert repository.resolve("node-labels", None).name == "alpha"
    chosen = settings(models=own_bundles, default_models="node-labels=cora")
    assert open_repository(chosen).resolve("node-labels", None).name == "cora"


def test_only_bundles_signed_by_a_trusted_key_are_served(own_bundles: Path, settings: Make) -> None:
    key = Ed25519PrivateKey.generate()
    sign_bundle(own_bundles / "cora" / "1", key)
    sign_bundle(own_bundles / "bodies" / "1", Ed25519PrivateKey.generate())
    repository = open_repository(settings(models=own_bundles, trusted_keys=public_key(key)))
    assert [model.name for model in repository.models()] == ["cora"]
    reasons = {entry["name"]: entry["reason"] for entry in repository.index()}
    assert "is not a trusted key" in reasons["bodies"]
    assert "is not signed" in reasons["mnist-superpixels"]
    add_version(own_bundles, "cora", "2")  # a copied signature fits no other manifest
    repository.refresh()
    assert repository.get("cora").version == "1"
    sign_bundle(own_bundles / "cora" / "2", key)
    repository.refresh()
    assert repository.get("cora").version == "2"


def test_a_trusted_key_that_is_none_is_refused(settings: Make) -> None:
    with pytest.raises(ValueError, match="a trusted key must be 32 bytes in base64, got 'abc'"):
        settings(trusted_keys="abc")
