"""compose.yaml: both profiles parse, and the service is shut in."""

import re

import pytest
from deploy_files import DOCKER, DRAIN_SECONDS, SETTINGS, compose, read_yaml

SERVICES = ("splinecnn-cpu", "splinecnn-gpu")


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_compose_accepts_the_profile(profile: str) -> None:
    compose("--profile", profile, "config", "--quiet")


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_a_profile_starts_one_service_with_its_monitoring(profile: str) -> None:
    services = read_yaml(DOCKER / "compose.yaml")["services"]
    started = {name for name, service in services.items() if profile in service["profiles"]}
    assert started == {f"splinecnn-{profile}", "prometheus", "grafana"}


@pytest.mark.parametrize("name", SERVICES)
def test_the_service_is_shut_in(name: str) -> None:
    service = read_yaml(DOCKER / "compose.yaml")["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"][0].startswith("/tmp:")
    assert service["pids_limit"] and service["mem_limit"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("name", SERVICES)
def test_the_service_has_time_to_drain(name: str) -> None:
    service = read_yaml(DOCKER / "compose.yaml")["services"][name]
    assert int(service["stop_grace_period"].removesuffix("s")) > DRAIN_SECONDS


@pytest.mark.parametrize("name", SERVICES)
def test_environment_names_are_settings(name: str) -> None:
    service = read_yaml(DOCKER / "compose.yaml")["services"][name]
    assert set(service["environment"]) <= SETTINGS


def test_the_gpu_service_reserves_a_device() -> None:
    service = read_yaml(DOCKER / "compose.yaml")["services"]["splinecnn-gpu"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    assert service["build"]["target"] == "cuda"


def test_foreign_images_have_exact_versions() -> None:
    services = read_yaml(DOCKER / "compose.yaml")["services"]
    for name in ("prometheus", "grafana"):
        assert re.search(r":-[a-z]+/[a-z]+:v?\d+\.\d+\.\d+}$", services[name]["image"])


def test_mounted_files_exist() -> None:
    for service in read_yaml(DOCKER / "compose.yaml")["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith("./") or (DOCKER / source).is_dir(), source
