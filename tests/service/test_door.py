"""The door: it learns how fast work leaves, and refuses what could not be answered in time."""

import time

import pytest

from service.door import Door
from service.errors import Full, Gone, Late


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def serve(door: Door, clock: Clock, size: int, seconds: float, error: type | None = None) -> None:
    door.enter(size)
    clock.now += seconds
    door.leave(size, error)


def test_the_wait_is_what_such_bytes_took(clock: Clock) -> None:
    door = Door()
    serve(door, clock, 1000, 0.5)
    clock.now += 60  # idle time is not work
    serve(door, clock, 2000, 1.0)
    assert door.wait() == 0
    door.enter(4000)
    assert door.wait() == pytest.approx(2.0)


def test_work_done_together_counts_once(clock: Clock) -> None:
    door = Door()
    door.enter(1000)
    door.enter(1000)
    clock.now += 1
    door.leave(1000, None)
    door.leave(1000, None)
    door.enter(4000)
    assert door.wait() == pytest.approx(2.0, rel=0.1)


def test_whoever_would_wait_too_long_is_refused_with_the_time_to_come_back(clock: Clock) -> None:
    door = Door()
    serve(door, clock, 1000, 1.0)
    door.check(clock.now + 0.01)  # nobody is inside
    door.enter(5000)
    door.check(clock.now + 10.1)
    with pytest.raises(Full, match="need about 5.0 s") as caught:
        door.check(clock.now + 9.9)
    assert caught.value.headers["Retry-After"] == "5"


def test_whoever_comes_after_the_deadline_is_late_however_empty_it_is(clock: Clock) -> None:
    with pytest.raises(Late, match="passed before the request could be taken"):
        Door().check(clock.now)


def test_late_answers_slow_the_pace_and_other_faults_do_not(clock: Clock) -> None:
    door = Door()
    serve(door, clock, 1000, 1.0)
    serve(door, clock, 1000, 9.0, Gone)
    door.enter(1000)
    assert door.wait() == pytest.approx(1.0)
    clock.now += 3
    door.leave(1000, Late)
    door.enter(1000)
    assert door.wait() > 3
