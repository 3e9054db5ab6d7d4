"""The process: starting, refusing to start, draining on SIGTERM, several workers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_toys import ball, ring

from service.runner import DeviceError, check_device
from service.server import REFUSED, run
from service.settings import Settings

Make = Callable[..., Settings]


class Process:
    """The service in a process of its own, its log read as it comes."""

    def __init__(self, **fields: Any) -> None:
        code = (
            "import sys; from service.server import run; from service.settings import Settings; "
            f"sys.exit(run(Settings(**{fields!r})))"
        )
        self.child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path.cwd(),
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        self.lines: list[str] = []
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.lines.append(line)
            found = re.search(r"serving on (http\S+)", line)
            if found:
                self.url = found[1]
                break
        else:
            raise AssertionError("".join(self.lines))
        self._reader = threading.Thread(target=self.lines.extend, args=[self.child.stderr])
        self._reader.start()

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.child.send_signal(how)
        return self.wait()

    @property
    def reading(self) -> bool:
        return self._reader.is_alive()

    def wait(self) -> int:
        code = self.child.wait(60)
        self._reader.join(60)
        if not self.reading:
            assert self.child.stderr is not None
            self.child.stderr.close()
        return code


@pytest.fixture
def launch(toy_bundles: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def make(**changes: Any) -> Process:
        fields = {"models": str(toy_bundles), "port": 0, "threads": 1, "watch_seconds": 0}
        started.append(Process(**{**fields, **changes}))
        return started[-1]

    yield make
    for process in started:
        if process.child.poll() is None:
            process.child.kill()
            process.wait()


def test_sigterm_answers_what_was_accepted_and_tells_others_503(
    launch: Callable[..., Process],
) -> None:
    process = launch(drain_notice_seconds=1.0)
    answers: list[int] = []

    def post() -> None:
        body = {"mesh": ball(5)}  # 10,242 vertices: long enough to be under way
        answer = httpx.post(f"{process.url}/v1/correspondence", json=body, timeout=60)
        answers.append(answer.status_code)

    callers = [threading.Thread(target=post) for _ in range(4)]
    for caller in callers:
        caller.start()
    with httpx.Client(base_url=process.url) as client:
        while "splinecnn_in_flight 4.0" not in client.get("/metrics").text:
            if len(answers) == 4:
                break
        process.child.send_signal(signal.SIGTERM)
        while client.get("/readyz").status_code != 503:
            pass
        assert client.get("/healthz").status_code == 200
        refused = client.post("/v1/node-labels", json={"graph": ring()})
        assert refused.status_code == 503
        assert "shutting down" in refused.json()["detail"]
    for caller in callers:
        caller.join()
    assert answers == [200] * 4
    assert process.wait() == 0
    assert any("drained" in line for line in process.lines)


def eventually(look: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """What is seen once it is good: the other worker tells its numbers once a second."""
    until = time.monotonic() + 10
    while not good(seen := look()):
        assert time.monotonic() < until, seen
        time.sleep(0.1)
    return seen


def test_several_workers_share_a_port_and_their_metrics(launch: Callable[..., Process]) -> None:
    process = launch(workers=2)
    for _ in range(6):  # new connections, so that both workers get some
        assert (
            httpx.post(f"{process.url}/v1/node-labels", json={"graph": ring()}).status_code == 200
        )
    while len(told := re.findall(r"loaded cora/1 in ([\d.]+) s", "".join(process.lines))) < 2:
        time.sleep(0.05)
    counted = 'splinecnn_predictions_total{model="cora",status="200",version="1"} 6.0'
    text = eventually(lambda: httpx.get(f"{process.url}/metrics").text, lambda t: counted in t)
    (loaded,) = re.findall(r'splinecnn_model_load_seconds\{model="cora".*\} (\S+)', text)
    assert float(loaded) == pytest.approx(max(float(seconds) for seconds in told), abs=0.01)
    assert httpx.post(f"{process.url}/v1/node-labels", json={"graph": {}}).status_code == 422
    eventually(
        lambda: httpx.get(f"{process.url}/v2/models/cora/stats").json()["model_stats"][0],
        lambda stats: [stats["inference_stats"][n]["count"] for n in ("success", "fail")] == [6, 1],
    )
    refused = httpx.post(f"{process.url}/v2/repository/models/cora/load")
    assert refused.status_code == 403
    killed = _workers(process.child.pid)[-1]
    os.kill(killed, signal.SIGKILL)
    while not any(f"worker {killed} ended with code -9" in line for line in process.lines):
        time.sleep(0.05)
    assert httpx.get(f"{process.url}/readyz", timeout=60).status_code == 200
    assert process.stop() == 0, "".join(process.lines)


@pytest.mark.slow
def test_workers_end_with_a_parent_that_was_killed(launch: Callable[..., Process]) -> None:
    process = launch(workers=2, drain_notice_seconds=0)
    assert process.stop(signal.SIGKILL) == -signal.SIGKILL
    assert not process.reading  # their end closed the log


def _workers(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def test_a_port_in_use_is_one_line(settings: Make, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(settings(port=taken.getsockname()[1])) == REFUSED
    line = capsys.readouterr().err
    assert "Address already in use" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": Path("nowhere")}, "there is no directory nowhere"),
        ({"device": "cuda"}, "device cuda was asked for, but"),
        ({"device": "cuda", "runtime": "onnx"}, "no CUDA provider"),
        ({"api_keys_file": Path("no-keys")}, "cannot read the key file no-keys"),
        ({"tls_cert": Path("no.pem"), "tls_key": Path("no.key")}, "there is no file no.pem"),
        ({"host": "256.1.1.1"}, "cannot listen on 256.1.1.1"),
        ({"only": "cora,tea"}, "--only names 'tea', but "),
        ({"default_models": "node-labels=tea"}, "--default-models names 'tea', but "),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    settings: Make,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run(settings(**changes)) == REFUSED
    line = capsys.readouterr().err
    assert line.startswith("splinecnn: ")
    assert message in line
    assert line.count("\n") == 1


def test_an_empty_directory_says_how_to_fill_it(
    settings: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(settings(models=tmp_path)) == REFUSED
    assert "splinecnn export" in capsys.readouterr().err


def test_a_certificate_that_is_none_is_one_line(
    settings: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text("tea")
    key.write_text("milk")
    assert run(settings(tls_cert=cert, tls_key=key)) == REFUSED
    line = capsys.readouterr().err
    assert f"TLS cannot use {cert} with {key}: " in line and "both in PEM" in line
    assert line.count("\n") == 1


def _run_unprivileged(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """As a user for whom modes count: root may read and write whatever they say."""
    command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not installed (Debian: util-linux)")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_a_directory_that_may_not_be_read_is_one_line(own_bundles: Path) -> None:
    own_bundles.chmod(0o311)
    done = _run_unprivileged(
        "import sys; from service.server import run; from service.settings import Settings; "
        "sys.exit(run(Settings(models=sys.argv[1], port=0)))",
        own_bundles,
    )
    own_bundles.chmod(0o755)
    assert done.returncode == REFUSED
    assert f"may not read the directory {own_bundles}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_writing_into_a_read_only_directory_is_one_line(
    own_bundles: Path, toy_bundles: Path
) -> None:
    own_bundles.chmod(0o555)
    done = _run_unprivileged(
        "import sys; from service.cli import main; main()",
        "export",
        toy_bundles.parent / "zoo" / "cora",
        "--out",
        own_bundles / "new",
    )
    own_bundles.chmod(0o755)
    assert done.returncode == 1
    assert "could not be written: Permission denied; name a directory" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_old_driver_is_named_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn() -> bool:  # what torch 2.13 does with a driver of CUDA 12.2
        text = "CUDA initialization: The NVIDIA driver on your system is too old (found version "
        warnings.warn(f"{text}12020). Please update your GPU driver", stacklevel=1)
        return False

    monkeypatch.setattr("torch.cuda.is_available", warn)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    wanted = "driver is too old: it has CUDA 12.2, this PyTorch needs 13.0; update the driver"
    with pytest.raises(DeviceError, match=wanted):
        check_device("cuda", "torchscript")


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    check_device("cuda:0", "torchscript")
    with pytest.raises(DeviceError, match="only 1 CUDA devices are here"):
        check_device("cuda:1", "torchscript")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device": "tpu"}, "must be cpu, cuda or cuda:<number>, got 'tpu'"),
        ({"tls_cert": "a.pem"}, "--tls-cert and --tls-key go together"),
        ({"default_models": "cora"}, "must look like task=name"),
        (
            {"default_models": "correspondance=bodies"},
            "task must be one of correspondence, node-labels, graph-label, got 'correspondance'",
        ),
        ({"port": 70000}, "less than or equal to 65535"),
        ({"bogus": 1}, "Extra inputs are not permitted"),
    ],
)
def test_bad_settings_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Settings(**fields)


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLINECNN_PORT", "9001")
    monkeypatch.setenv("SPLINECNN_CORS_ORIGINS", "https://a.example, https://b.example")
    monkeypatch.setenv("SPLINECNN_DEFAULT_MODELS", "correspondence=bodies")
    monkeypatch.setenv("SPLINECNN_DEVICE", "cuda:0,cuda:1")
    settings = Settings()
    assert settings.port == 9001
    assert settings.cors_origins == ["https://a.example", "https://b.example"]
    assert settings.default_models == {"correspondence": "bodies"}
    assert settings.devices == ["cuda:0", "cuda:1"]


def test_every_setting_is_one_sentence() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name
