"""The load generator of caller.cpp: compiled once, then run as a process of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path(__file__).with_suffix(".cpp")
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
LOST = 0  # in place of a status: no answer came
REPLY = np.dtype(
    [
        ("request", "<i4"),
        ("status", "<i4"),
        ("start", "<f8"),
        ("seconds", "<f8"),
        ("retry_after", "<i4"),
        ("size", "<i4"),
    ]
)


@dataclass(frozen=True)
class Run:
    """Every reply, as rows of REPLY in the order in which they came, and how long that took."""

    replies: np.ndarray
    answers: list[bytes]
    asked: int
    wall: float

    @property
    def statuses(self) -> Counter[int]:
        return Counter(self.replies["status"].tolist())

    def of(self, *statuses: int) -> np.ndarray:
        return self.replies[np.isin(self.replies["status"], statuses)]

    def seconds(self, share: float, *statuses: int) -> float:
        """A percentile of the time to answer."""
        times = self.of(*statuses)["seconds"]
        return float(np.quantile(times, share)) if len(times) else float("nan")

    @property
    def unanswered(self) -> int:
        return self.asked - len(self.replies) + self.statuses[LOST]

    def insist(self) -> None:
        """That every answer is a 200; the first that is none is shown, if answers were kept."""
        for reply, answer in zip(self.replies, self.answers, strict=True):
            if reply["status"] != 200:
                said = answer[:600].decode(errors="replace") or "the server did not answer"
                raise RuntimeError(said)


def program() -> Path:
    """The compiled caller; made if there is none of this source yet."""
    source = SOURCE.read_bytes()
    made = ROOT / "build" / f"caller-{hashlib.sha256(source).hexdigest()[:12]}"
    if not made.exists():
        if COMPILER is None:
            raise RuntimeError("the load generator needs a C++ compiler, and none was found")
        made.parent.mkdir(exist_ok=True)
        aside = made.with_name(f"{made.name}.{os.getpid()}")
        subprocess.run([COMPILER, "-std=c++17", "-O2", "-o", str(aside), str(SOURCE)], check=True)
        aside.replace(made)
    return made


async def closed_loop(
    port: int,
    requests: Sequence[bytes],
    callers: int,
    seconds: float,
    *,
    answers: bool = False,
    patience: float = 60.0,
) -> Run:
    """So many callers, each asking again as soon as it is answered, and at least once."""
    words = [f"--callers={callers}", f"--seconds={seconds}", f"--patience={patience}"]
    return await _run(port, requests, words, answers)


async def open_loop(
    port: int,
    requests: Sequence[bytes],
    rate: float,
    seconds: float,
    *,
    most: int = 1000,
    answers: bool = False,
) -> Run:
    """Arrivals at a fixed rate, whether or not earlier ones have been answered.

    Only while `most` are unanswered does nobody else arrive: each holds a connection and a body.
    """
    words = [f"--rate={rate}", f"--seconds={seconds}", f"--most={most}"]
    return await _run(port, requests, words, answers)


async def _run(port: int, requests: Sequence[bytes], words: list[str], answers: bool) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        asked, replied, answered = (
            Path(folder) / name for name in ("asked", "replied", "answered")
        )
        asked.write_bytes(b"".join(struct.pack("<I", len(each)) + each for each in requests))
        words = [*words, f"--answers={answered}"] if answers else words
        child = await asyncio.create_subprocess_exec(
            program(), *words, str(port), asked, replied, stdout=asyncio.subprocess.PIPE
        )
        try:
            said, _ = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            raise RuntimeError(f"the load generator ended with {child.returncode}")
        wall, count = said.split()
        replies = np.fromfile(replied, REPLY)
        kept = _split(answered.read_bytes(), replies["size"]) if answers else []
    return Run(replies, kept, int(count), float(wall))


def _split(whole: bytes, sizes: np.ndarray) -> list[bytes]:
    ends = np.cumsum(sizes, dtype=np.int64).tolist()
    return [whole[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
