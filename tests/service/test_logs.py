"""Log lines: one JSON object each, with the request id, and never a secret."""

from __future__ import annotations

import io
import logging

import orjson
import pytest
from service_toys import Caller, ring

from service import logs
from service.logs import GatheringHandler, JsonFormatter, TextFormatter
from service.settings import Settings


def record(**extra: object) -> logging.LogRecord:
    line = logging.LogRecord("splinecnn.test", logging.INFO, "", 1, "served %d", (7,), None)
    vars(line).update(extra)
    return line


def test_a_line_is_one_json_object_with_its_extras() -> None:
    line = orjson.loads(JsonFormatter().format(record(request_id="abc", route="/v1/models")))
    assert line["message"] == "served 7"
    assert line["level"] == "info"
    assert line["request_id"] == "abc"
    assert line["route"] == "/v1/models"
    assert line["time"].endswith("Z")


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("inside")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    text = JsonFormatter().format(record(exc_info=info))
    assert "\n" not in text
    assert "ValueError: inside" in orjson.loads(text)["exception"]


def test_lines_of_a_busy_moment_are_written_together_and_none_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "_PAUSE", 60.0)
    handler = GatheringHandler()
    handler.setStream(io.StringIO())
    for number in range(5):
        handler.handle(record(request_id=str(number)))
    assert handler.stream.getvalue() == "served 7\n"  # the first goes at once
    handler.flush()
    assert handler.stream.getvalue() == "served 7\n" * 5


def test_a_warning_takes_along_what_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_PAUSE", 60.0)
    handler = GatheringHandler()
    handler.setStream(io.StringIO())
    handler.handle(record())
    handler.handle(record())
    bad = record()
    bad.levelno = logging.WARNING
    handler.handle(bad)
    assert handler.stream.getvalue().count("served 7") == 3


def test_text_is_for_people() -> None:
    assert "served 7" in TextFormatter().format(record())


def test_a_prediction_is_logged_with_its_model_and_stages(
    api: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "splinecnn.access"):
        api.post("/v1/node-labels", json={"graph": ring()}, headers={"X-Request-ID": "seen"})
    line = vars(caplog.records[-1])
    assert line["request_id"] == "seen"
    assert line["route"] == "/v1/node-labels"
    assert line["model"] == "cora/1"
    assert {"decode_ms", "queue_ms", "run_ms", "encode_ms", "batch", "nodes"} <= set(line)


def test_secrets_do_not_show_in_settings() -> None:
    shown = repr(Settings(api_keys="hush-one", admin_key="hush-two"))
    assert "hush" not in shown
