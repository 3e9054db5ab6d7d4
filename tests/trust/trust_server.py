"""The service in a process of its own, watched from outside: its log, memory, threads and files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.trust.trust_results import ROOT


@dataclass(frozen=True)
class Vitals:
    """What a process holds at one moment."""

    resident: int
    threads: int
    files: int


class Server:
    """`run(settings)` in a child; `prelude` is Python that the child runs first."""

    def __init__(
        self,
        prelude: str = "",
        env: dict[str, str] | None = None,
        root: Path = ROOT,
        **settings: Any,
    ) -> None:
        fields = {"port": 0, "threads": 1, "watch_seconds": 0, **settings}
        fields["models"] = str(fields["models"])
        code = (
            f"{prelude}\n"
            "import sys\n"
            "from service.server import run\n"
            "from service.settings import Settings\n"
            f"if __name__ == '__main__': sys.exit(run(Settings(**{fields!r})))\n"
        )
        self.child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            stderr=subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), **(env or {})},
        )
        self.lines: list[str] = []
        self._told = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._told.wait(120) or not self.url:
            self.kill()
            raise AssertionError("".join(self.lines))

    url = ""

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            text = line.decode("utf-8", "replace")
            self.lines.append(text)
            found = re.search(r"serving on (http[^\s\"]+)", text)
            if found and not self.url:
                self.url = found[1]
                self._told.set()
        self._told.set()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self.child.pid

    def vitals(self) -> Vitals:
        """Of the whole family, if there are workers."""
        family = [self.pid, *workers(self.pid)]
        status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in family)
        return Vitals(
            resident=sum(map(int, re.findall(r"VmRSS:\s+(\d+)", status))) * 1024,
            threads=sum(map(int, re.findall(r"Threads:\s+(\d+)", status))),
            files=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in family),
        )

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=30)

    def settle(self, seconds: float = 30.0) -> float:
        """Wait until nothing is in flight; how long that took."""
        begun = time.monotonic()
        while "splinecnn_in_flight 0.0" not in self.get("/metrics").text:
            assert time.monotonic() - begun < seconds, "requests are still in flight"
            time.sleep(0.02)
        return time.monotonic() - begun

    def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        code = self.child.wait(90)
        self._reader.join(30)
        if not self._reader.is_alive() and self.child.stderr is not None:
            self.child.stderr.close()
        return code

    def kill(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def workers(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
