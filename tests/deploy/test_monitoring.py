"""Dashboards, alerts and the autoscaler name only metrics and labels that the service has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy_files import DOCKER, find, read_yaml, succeed
from prometheus_client import Counter, Histogram

from service.metrics import Metrics

ALERTS = DOCKER / "prometheus" / "alerts.yaml"
DASHBOARD = DOCKER / "grafana" / "dashboards" / "splinecnn.json"
EVERYWHERE = {"instance", "job", "le", "namespace", "pod"}  # added by Prometheus


def published() -> dict[str, set[str]]:
    """Each series the service can publish, with its labels."""
    series: dict[str, set[str]] = {}
    for metric in vars(Metrics()).values():
        if not hasattr(metric, "_labelnames"):
            continue
        suffixes = [""]
        if isinstance(metric, Counter):
            suffixes = ["_total"]
        elif isinstance(metric, Histogram):
            suffixes = ["_bucket", "_sum", "_count"]
        for suffix in suffixes:
            series[metric._name + suffix] = set(metric._labelnames) | EVERYWHERE
    return series


def dashboard_expressions() -> list[str]:
    board = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return asked + [variable["query"] for variable in board["templating"]["list"]]


def alert_expressions() -> list[str]:
    return [rule["expr"] for group in read_yaml(ALERTS)["groups"] for rule in group["rules"]]


def autoscaler_expressions() -> list[str]:
    (scaler,) = yaml.safe_load_all((DOCKER / "k8s/base/autoscaler.yaml").read_text())
    (rule,) = read_yaml(DOCKER / "k8s/monitoring/adapter-rules.yaml")["rules"]["custom"]
    name = scaler["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert rule["name"]["matches"] == name, "the adapter offers another metric than is asked for"
    return [name, rule["seriesQuery"]]


def test_every_named_metric_and_label_exists() -> None:
    series = published()
    for expression in dashboard_expressions() + alert_expressions() + autoscaler_expressions():
        for name, selector in re.findall(r"(splinecnn_\w+)(\{[^}]*\})?", expression):
            assert name in series, f"{name} in {expression}"
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector))
            assert labels <= series[name], f"{labels - series[name]} of {name}"


def test_every_label_grouped_by_exists() -> None:
    known = set().union(*published().values())
    for expression in dashboard_expressions() + alert_expressions():
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert {label.strip() for label in group.split(",")} <= known, expression


def test_every_metric_is_watched_somewhere() -> None:
    watched = " ".join(dashboard_expressions() + alert_expressions())
    missing = [name for name in published() if name.rsplit("_", 1)[0] not in watched]
    assert set(missing) <= {"splinecnn_model_load_seconds"}


def test_cluster_alerts_are_the_same_as_compose_alerts() -> None:
    rules = read_yaml(DOCKER / "k8s" / "monitoring" / "rules.yaml")
    assert rules["spec"]["groups"] == read_yaml(ALERTS)["groups"]


def test_dashboard_uses_the_provisioned_source() -> None:
    (source,) = read_yaml(DOCKER / "grafana/provisioning/datasources/prometheus.yaml")[
        "datasources"
    ]
    board = json.loads(DASHBOARD.read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


def test_promtool_accepts_configuration_and_rules() -> None:
    promtool = find("promtool", "Debian: prometheus")
    succeed(promtool, "check", "config", str(DOCKER / "prometheus" / "prometheus.yaml"))
    succeed(promtool, "check", "rules", str(ALERTS))


def test_promtool_accepts_the_metrics() -> None:
    promtool = find("promtool", "Debian: prometheus")
    succeed(promtool, "check", "metrics", input=Metrics().render().decode())


def test_promtool_accepts_the_dashboard(tmp_path: Path) -> None:
    promtool = find("promtool", "Debian: prometheus")
    queries = [query for query in dashboard_expressions() if not query.startswith("label_values")]
    rules = [
        {"record": f"panel:{i}", "expr": query.replace("$__rate_interval", "1m")}
        for i, query in enumerate(queries)
    ]
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    succeed(promtool, "check", "rules", str(path))


@pytest.mark.parametrize("status", ["500", "504"])
def test_error_alert_counts_faults_but_not_draining(status: str) -> None:
    (rule,) = [
        r for r in read_yaml(ALERTS)["groups"][0]["rules"] if r["alert"] == "SplinecnnErrors"
    ]
    assert 'status!="503"' in rule["expr"]
    pattern = re.search(r'status=~"([^"]+)"', rule["expr"])
    assert pattern and re.fullmatch(pattern[1], status)
