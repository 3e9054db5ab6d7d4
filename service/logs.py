"""Log lines: one JSON object each, or plain text, with the request id where there is one."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any, TextIO

import orjson

from service.settings import Settings

_PAUSE = 0.1  # seconds
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def milliseconds(seconds: float) -> float:
    """To three digits behind the point; `round` would take several times as long."""
    return int(seconds * 1e6 + 0.5) / 1e3


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _stamp(created: float) -> str:
    whole = int(created)
    return f"{_second(whole)}.{int((created - whole) * 1000):03d}Z"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({k: v for k, v in vars(record).items() if k not in _STANDARD and v != ""})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode("utf-8")


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")


class GatheringHandler(logging.StreamHandler[TextIO]):
    """Writes the lines of a busy moment together; a system call for each would be felt.

    The first line after a pause goes out at once, the others within `flush`'s period; whatever is
    a warning or worse takes everything before it along.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._written = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record))
        except Exception:
            self.handleError(record)
        if record.levelno >= logging.WARNING or time.monotonic() - self._written > _PAUSE:
            self.flush()

    def put(self, logger: str, level: int, message: str, fields: dict[str, Any]) -> None:
        """The line of a request, without a record made for it first."""
        if not isinstance(self.formatter, JsonFormatter):
            record = logging.LogRecord(logger, level, "", 0, message, None, None)
            vars(record).update(fields)
            self.emit(record)
            return
        now = time.time()
        line = {
            "time": _stamp(now),
            "level": logging.getLevelName(level).lower(),
            "logger": logger,
            "message": message,
            **fields,
        }
        self._lines.append(orjson.dumps(line, default=str).decode("utf-8"))
        if time.monotonic() - self._written > _PAUSE:
            self.flush()

    def flush(self) -> None:
        # On a full disk, or with nobody reading, lines are lost; the answers they tell of are not.
        with self.lock or nullcontext(), suppress(OSError, ValueError):
            lines, self._lines = self._lines, []
            if lines:
                self._written = time.monotonic()
                self.stream.write("\n".join([*lines, ""]))
            super().flush()


def flush() -> None:
    """Write what still lies in handlers; called about once a second."""
    for handler in logging.getLogger("splinecnn.access").handlers:
        handler.flush()


def configure(settings: Settings) -> None:
    """Send every line of this process to standard error in the chosen shape."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    level = settings.log_level.upper()
    for name in ("splinecnn", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
    gathering = GatheringHandler()
    gathering.setFormatter(handler.formatter)
    access = logging.getLogger("splinecnn.access")
    access.handlers = [gathering]
    access.propagate = False
    # No line says where in the code it was written, or by which thread: do not look it up.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Its lines repeat ours; errors it has to say still come through.
    logging.getLogger("uvicorn.error").setLevel("WARNING")
    logging.getLogger("uvicorn.access").disabled = True
