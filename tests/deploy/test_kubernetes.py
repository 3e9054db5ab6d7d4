"""The manifests: valid, shut in, and matched to how the service starts and stops."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy_files import DOCKER, DRAIN_SECONDS, SETTINGS, find, succeed

K8S = DOCKER / "k8s"
Manifest = dict[str, Any]


def overlay(name: str) -> list[Manifest]:
    kubectl = find("kubectl", "Debian: kubernetes-client")
    text = succeed(kubectl, "kustomize", str(K8S / "overlays" / name))
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def of_kind(manifests: list[Manifest], kind: str) -> Manifest:
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def load(path: Path) -> Manifest:
    (manifest,) = yaml.safe_load_all(path.read_text())
    return manifest


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_overlay_is_valid(name: str, tmp_path: Path) -> None:
    validate = find("kubernetes-validate", "pip install kubernetes-validate")
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(overlay(name)))
    succeed(validate, "--strict", "--no-warn", str(path))


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_overlay_has_every_part(name: str) -> None:
    kinds = {manifest["kind"] for manifest in overlay(name)}
    assert kinds == {
        "Namespace", "ServiceAccount", "Deployment", "Service", "HorizontalPodAutoscaler",
        "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor", "PrometheusRule",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_selectors_find_the_pods(name: str) -> None:
    manifests = overlay(name)
    labels = of_kind(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    wanted = [
        of_kind(manifests, "Deployment")["spec"]["selector"]["matchLabels"],
        of_kind(manifests, "Service")["spec"]["selector"],
        of_kind(manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        of_kind(manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    for selector in wanted:
        assert selector and selector.items() <= labels.items()
    monitored = of_kind(manifests, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= of_kind(manifests, "Service")["metadata"]["labels"].items()


def pods() -> dict[str, Manifest]:
    deployment = load_deployment()
    predictor = load(K8S / "kserve" / "inferenceservice.yaml")["spec"]["predictor"]
    cluster = load(K8S / "kuberay" / "rayservice.yaml")["spec"]["rayClusterConfig"]
    return {
        "deployment": deployment["spec"]["template"]["spec"],
        "kserve": predictor,
        "ray head": cluster["headGroupSpec"]["template"]["spec"],
        "ray worker": cluster["workerGroupSpecs"][0]["template"]["spec"],
    }


def load_deployment() -> Manifest:
    documents = yaml.safe_load_all((K8S / "base" / "deployment.yaml").read_text())
    return of_kind(list(documents), "Deployment")


@pytest.mark.parametrize("name", ["deployment", "kserve", "ray head", "ray worker"])
def test_pods_are_shut_in(name: str) -> None:
    pod = pods()[name]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert pod["enableServiceLinks"] is False, "a link would set SPLINECNN_PORT to tcp://…"
    if not name.startswith("ray"):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("name", ["deployment", "kserve"])
def test_a_pod_is_given_time_to_drain(name: str) -> None:
    pod = pods()[name]
    stop = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > int(stop[-1]) + DRAIN_SECONDS


def test_environment_names_are_settings() -> None:
    for path in K8S.rglob("*.yaml"):
        # names alone: comments may speak of SPLINECNN_PORT and such
        names = set(re.findall(r"name: (SPLINECNN_\w+)", path.read_text()))
        assert names <= SETTINGS, path


@pytest.mark.parametrize("name", ["deployment", "kserve"])
def test_probes_ask_routes_that_exist(name: str) -> None:
    from service.routes import health, v2

    known = {route.path for router in (health.router, v2.health) for route in router.routes}
    container = pods()[name]["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in known


def test_gpu_overlay_asks_for_one_device() -> None:
    pod = of_kind(overlay("gpu"), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["image"] == "splinecnn-service:cuda"
    assert {"name": "SPLINECNN_DEVICE", "value": "cuda"} in container["env"]


def test_ray_service_names_a_builder_that_exists() -> None:
    spec = load(K8S / "kuberay" / "rayservice.yaml")["spec"]
    (application,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    module, name = application["import_path"].split(":")
    assert callable(getattr(importlib.import_module(module), name))
    lock = (DOCKER / "requirements" / "ray.lock").read_text()
    assert f"ray=={spec['rayClusterConfig']['rayVersion']} " in lock
