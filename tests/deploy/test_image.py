"""The built image in a real Docker Engine: healthy, shut in, answering, leaving gracefully (slow).

`make test-image` builds and runs this. Environment: IMAGE, BASE_IMAGE, and DOCKER_BUILD with more
arguments of docker build.
"""

import io
import json
import os
import re
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from deploy_files import ROOT, compose, find, run, succeed
from PIL import Image, ImageDraw

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

IMAGE = os.environ.get("IMAGE", "splinecnn-service:cpu")
BASE_IMAGE = os.environ.get("BASE_IMAGE", "debian:bookworm-slim")
MOST_BYTES = 1.3e9
TASKS = ("correspondence", "node-labels", "graph-label")


def docker(*arguments: str) -> str:
    return succeed(find("docker", "Docker Engine"), *arguments).strip()


def run_once(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A container without network, as locked up as compose does it."""
    shut = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    if "--network" not in arguments:
        shut += ["--network", "none"]
    return run(find("docker", "Docker Engine"), "run", "--rm", *shut, *arguments)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def image() -> Any:
    if run(find("docker", "Docker Engine"), "info").returncode:
        pytest.skip("no Docker Engine answers")
    if run("docker", "image", "inspect", IMAGE).returncode:
        pytest.skip(f"there is no image {IMAGE} (make image)")
    return json.loads(docker("image", "inspect", IMAGE))[0]


class Stack:
    """The service and Prometheus, started by compose under a name of their own."""

    def __init__(self) -> None:
        self.ports = {"PORT": free_port(), "PROMETHEUS_PORT": free_port()}
        self.environment = {
            **os.environ,
            "IMAGE": IMAGE,
            "PROMETHEUS_IMAGE": "splinecnn-test-prometheus",
            "MEMORY": "2g",
            "CPUS": "2",
            **{name: str(port) for name, port in self.ports.items()},
        }
        self.container = "splinecnn-test-splinecnn-cpu-1"

    def compose(self, *arguments: str) -> str:
        project = ["--project-name", "splinecnn-test", "--profile", "cpu"]
        return compose(*project, *arguments, env=self.environment)

    def state(self) -> Any:
        return json.loads(docker("inspect", self.container))[0]["State"]

    def log(self, start: str) -> list[Any]:
        """Lines of the service's log whose message starts so."""
        lines = [
            json.loads(line) for line in run("docker", "logs", self.container).stderr.splitlines()
        ]
        return [line for line in lines if line["message"].startswith(start)]

    def address(self) -> str:
        """Past the port proxy, which accepts callers also when the service no longer does."""
        networks = json.loads(docker("inspect", self.container))[0]["NetworkSettings"]["Networks"]
        (network,) = networks.values()
        return f"http://{network['IPAddress']}:8000"


@pytest.fixture(scope="module")
def stack(image: Any) -> Iterator[Stack]:
    if "cuda" in IMAGE:
        pytest.skip("the CUDA image needs a device (test_cuda_image.py)")
    more = shlex.split(os.environ.get("DOCKER_BUILD", ""))
    file = str(ROOT / "tests" / "deploy" / "prometheus.Dockerfile")
    base = ["--build-arg", f"BASE_IMAGE={BASE_IMAGE}", "--tag", "splinecnn-test-prometheus"]
    docker("build", "--quiet", *more, *base, "--file", file, str(ROOT / "docker" / "prometheus"))
    stack = Stack()
    try:
        stack.compose("up", "--detach", "--wait", "--no-build", "splinecnn-cpu", "prometheus")
        yield stack
    finally:
        print(stack.compose("logs", "--no-color"))
        stack.compose("down", "--volumes", "--timeout", "5")


@pytest.fixture(scope="module")
def http(stack: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{stack.ports['PORT']}", timeout=60) as client:
        yield client


def test_image_is_small(image: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{IMAGE}: {image['Size'] / 1e6:.0f} MB")
    assert "cpu" not in IMAGE or image["Size"] <= MOST_BYTES


def test_image_says_what_it_is(image: Any) -> None:
    labels = image["Config"]["Labels"]
    for name in ("title", "description", "licenses", "version", "revision", "created"):
        assert labels[f"org.opencontainers.image.{name}"]
    assert image["Config"]["User"] == "10001:10001"
    assert image["Config"]["Healthcheck"]["Test"][-1] == "/usr/local/bin/healthcheck"


def test_image_holds_no_build_tools(image: Any) -> None:
    tools = "pip pip3 gcc g++ cc make node npm nvcc"
    done = run_once(IMAGE, "sh", "-c", f"command -v {tools}; ls /root/.cache /opt/tools")
    assert done.stdout == ""


def test_image_lists_its_parts(image: Any) -> None:
    text = run_once(IMAGE, "cat", "/app/sbom.cdx.json").stdout
    parts = {part["name"]: part for part in json.loads(text)["components"]}
    assert parts["torch"]["version"].startswith("2.13.0")
    assert {"fastapi", "numpy", "onnxruntime", "splinecnn-service", "three"} <= parts.keys()
    shown = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n"]
    for line in run_once(IMAGE, *shown).stdout.splitlines():
        name, version = line.split()
        assert parts[name]["version"] == version
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_doctor_finds_every_bundle_whole(image: Any) -> None:
    done = run_once(IMAGE, "splinecnn", "doctor", "--models", "/srv/bundles")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every file matches its hash" in re.sub(r"\s+", " ", done.stdout)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ("SPLINECNN_MODELS=/nowhere", "there is no directory /nowhere"),
        ("SPLINECNN_MODELS=/tmp", "/tmp holds no bundle"),
        ("SPLINECNN_DEVICE=cuda", "device cuda was asked for"),
        ("SPLINECNN_API_KEYS_FILE=/nowhere", "cannot read the key file /nowhere"),
        ("SPLINECNN_API_KEYS_FILE=/dev/null", "the key file /dev/null holds no key"),
        ("SPLINECNN_ONLY=cora,tea", "--only names 'tea'"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(image: Any, environment: str, said: str) -> None:
    done = run_once("--env", "SPLINECNN_DEVICE=cpu", "--env", environment, IMAGE)
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode not in (0, 137)
    assert len(lines) == 1 and said in lines[0]


def test_a_port_in_use_is_said_in_one_line(image: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_once(
            *("--network", "host", "--env", f"SPLINECNN_PORT={port}"),
            *("--env", "SPLINECNN_HOST=127.0.0.1", "--env", "SPLINECNN_DEVICE=cpu", IMAGE),
        )
    assert done.returncode == 2
    assert (done.stdout + done.stderr).count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr


def test_signing_in_a_read_only_directory_is_said_in_one_line(image: Any) -> None:
    key = (
        "from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey as Key; "
        "from cryptography.hazmat.primitives import serialization as s; "
        "print(Key.generate().private_bytes("
        "s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()).decode())"
    )
    sign = "splinecnn sign /srv/bundles/cora/1 --key /tmp/key"
    done = run_once(IMAGE, "sh", "-c", f"python -c '{key}' > /tmp/key && {sign}")
    assert done.returncode == 1
    assert (done.stdout + done.stderr).count("\n") == 1
    assert "could not be written: Read-only file system; name a directory" in done.stderr


def test_container_is_healthy(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    state = stack.state()
    assert state["Health"]["Status"] == "healthy"
    good = next(check for check in state["Health"]["Log"] if check["ExitCode"] == 0)
    begun, healthy = (
        datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text))
        for text in (state["StartedAt"], good["End"])
    )
    with capsys.disabled():
        print(f"\nhealthy after {(healthy - begun).total_seconds():.1f} s")


def test_container_cannot_write_to_itself(stack: Stack) -> None:
    for path in ("/app/x", "/srv/bundles/x", "/x"):
        assert run("docker", "exec", stack.container, "touch", path).returncode != 0
    assert run("docker", "exec", stack.container, "id", "-u").stdout.strip() == "10001"


@pytest.mark.parametrize("task", TASKS)
def test_samples_are_answered(http: httpx.Client, task: str) -> None:
    models = http.get("/v1/models").json()["models"]
    names = [model["name"] for model in models if model["task"] == task]
    assert names
    for name in names:
        sample = http.get(f"/v1/models/{name}/sample").json()
        answer = http.post(f"/v1/{task}", json=sample)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"]["name"] == name


def test_an_image_is_answered(http: httpx.Client) -> None:
    drawn = Image.new("L", (28, 28))
    ImageDraw.Draw(drawn).line([(14, 4), (14, 24)], fill=255, width=3)
    body = io.BytesIO()
    drawn.save(body, "PNG")
    answer = http.post(
        "/v1/graph-label", content=body.getvalue(), headers={"Content-Type": "image/png"}
    )
    assert answer.status_code == 200, answer.text
    assert sum(answer.json()["probabilities"]) == pytest.approx(1, abs=1e-3)


def test_the_page_is_served(http: httpx.Client) -> None:
    assert "<script" in http.get("/").text


def test_prometheus_scrapes_it(stack: Stack) -> None:
    base = f"http://127.0.0.1:{stack.ports['PROMETHEUS_PORT']}/api/v1"
    end = time.monotonic() + 60
    found: list[Any] = []
    while not found and time.monotonic() < end:
        time.sleep(1)
        query = {"query": "splinecnn_predictions_total"}
        try:
            found = httpx.get(f"{base}/query", params=query).json()["data"]["result"]
        except httpx.TransportError:
            continue
    assert found, httpx.get(f"{base}/targets").text
    (group,) = httpx.get(f"{base}/rules").json()["data"]["groups"]
    assert not [rule for rule in group["rules"] if rule.get("lastError")]


class Caller(threading.Thread):
    """Asks again and again, also when it was sent away, until the service has gone."""

    def __init__(self, client: httpx.Client, body: bytes, name: str, gone: threading.Event) -> None:
        super().__init__(name=name)
        self._client, self._body, self._gone = client, body, gone
        self.outcomes: list[tuple[str, float, str]] = []  # request id, when it was sent, what came

    def run(self) -> None:
        while not self._gone.is_set():
            request_id = f"{self.name}-{len(self.outcomes)}"
            begun = time.monotonic()
            outcome = self._ask(request_id)
            self.outcomes.append((request_id, begun, outcome))
            if outcome != "200":
                time.sleep(0.05)

    def _ask(self, request_id: str) -> str:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        headers |= {"X-Request-ID": request_id, "Accept": "application/octet-stream"}
        try:
            answer = self._client.post("/v1/correspondence", content=self._body, headers=headers)
            return str(answer.status_code)
        except httpx.TransportError:
            return "away"


def test_stopping_under_load_loses_nothing(stack: Stack, http: httpx.Client) -> None:
    """What came before the stop is answered; later callers get a plain 503 or find nobody.

    Nobody is a refused connection, or one that was still in the kernel's queue when the door
    closed; the log proves that the service never saw those, and answered all it saw.
    """
    models = http.get("/v1/models").json()["models"]
    name = next(model["name"] for model in models if model["task"] == "correspondence")
    sample = http.get(f"/v1/models/{name}/sample").content
    gone = threading.Event()
    with httpx.Client(base_url=stack.address(), timeout=60) as client:
        callers = [Caller(client, sample, f"caller-{i}", gone) for i in range(8)]
        for caller in callers:
            caller.start()
        try:
            end = time.monotonic() + 120
            while not all(caller.outcomes for caller in callers):
                assert time.monotonic() < end, "not every caller got a first answer"
                time.sleep(0.05)
            stopped = time.monotonic()
            stack.compose("stop", "splinecnn-cpu")
        finally:
            gone.set()
            for caller in callers:
                caller.join()
    sent = [outcome for caller in callers for outcome in caller.outcomes]
    assert {outcome for _, begun, outcome in sent if begun < stopped} == {"200"}
    assert {outcome for _, _, outcome in sent} <= {"200", "503", "away"}
    assert any(outcome != "200" for _, _, outcome in sent), "nobody asked while it stopped"
    served = {line["request_id"]: str(line["status"]) for line in stack.log("POST")}
    assert {key: outcome for key, _, outcome in sent if outcome != "away"} == {
        key: status for key, status in served.items() if key.startswith("caller-")
    }
    assert len(stack.log("draining: ")) == len(stack.log("drained in ")) == 1
    state = stack.state()
    assert (state["ExitCode"], state["OOMKilled"]) == (0, False)
