"""Who is let in: a body is only worked on if it should be answered before its deadline.

Decoding a mesh to find that there is no time left for it takes that time from the others.
"""

from __future__ import annotations

import time
from typing import Protocol

from service.errors import Full, Late

_MEMORY = 0.95  # what a request weighs in the estimate against the one after it
_SHARE = 0.5  # of the time left that may be spent waiting: estimates are only estimates


class Door:
    """The door to one task: knows how many bytes are worked on, and how fast such bytes leave.

    The pace is measured as it is, with all that goes on beside: seconds during which there was
    work, over the bytes that were answered in them.
    """

    def __init__(self) -> None:
        self.inside = 0  # bytes
        self._since = 0.0  # the last answer, or the end of the last idle time
        self._seconds = 0.0
        self._bytes = 0.0

    def wait(self) -> float:
        """How long the work inside should still take."""
        return self.inside * self._seconds / self._bytes if self._bytes else 0.0

    def check(self, deadline: float) -> None:
        """Refuse a request that would have to wait too long."""
        wait, left = self.wait(), deadline - time.monotonic()
        if wait >= _SHARE * left:
            raise too_late(wait, left)

    def enter(self, size: int) -> None:
        if not self.inside:
            self._since = time.monotonic()
        self.inside += size

    def leave(self, size: int, error: type[BaseException] | None) -> None:
        self.inside -= size
        late = error is not None and issubclass(error, Late)
        if error is None or late:  # what else went wrong tells nothing of the pace
            now = time.monotonic()
            self._seconds = _MEMORY * self._seconds + now - self._since
            self._bytes = _MEMORY * self._bytes + (0 if late else size)
            self._since = now


class Counts(Protocol):
    """What a visit needs of the engine."""

    in_flight: int

    def count_refusal(self, why: Full | Late) -> None: ...


class Visit:
    """One request from the door to its answer."""

    def __init__(self, engine: Counts, door: Door) -> None:
        self._engine = engine
        self._door = door
        self._size = 0

    def check(self, deadline: float) -> None:
        """Refuse whoever would have to wait too long for what is worked on now."""
        try:
            self._door.check(deadline)
        except (Full, Late) as refusal:
            self._engine.count_refusal(refusal)
            raise

    def begin(self, size: int, deadline: float) -> None:
        """The body is here, so many bytes, and the work begins, unless it is too much by now."""
        self.check(deadline)
        self._size = max(1, size)
        self._door.enter(self._size)

    def __enter__(self) -> Visit:
        self._engine.in_flight += 1
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._engine.in_flight -= 1
        if self._size:
            self._door.leave(self._size, error)


def too_late(wait: float, left: float) -> Full | Late:
    """What to say to a request with so many seconds left that would have to wait so long."""
    if left <= 0:
        return Late("the deadline passed before the request could be taken")
    return Full(f"the requests before this one need about {wait:.1f} s", wait)
