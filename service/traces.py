"""OpenTelemetry spans of predictions: the request, and in it decode, queue, run and encode.

Off unless asked for. Spans are made when a request is over, from the times that were taken anyway,
so that a request which is not sampled costs next to nothing. Where they go, how many are kept and
what the service is called there is said by the standard OTEL_* variables.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.calls import Call


class TracesError(Exception):
    """Traces were asked for, but cannot be made."""


class Traces:
    """The way to a collector, by OTLP over HTTP."""

    def __init__(self) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise TracesError("traces need OpenTelemetry: pip install '.[otel]'") from None
        name = os.environ.get("OTEL_SERVICE_NAME", "splinecnn")
        self._provider = TracerProvider(resource=Resource.create({"service.name": name}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("splinecnn")
        self._caller = TraceContextTextMapPropagator()
        self._api: Any = trace

    def record(self, call: Call, route: str, status: int, started: float) -> None:
        """A request that is over, as a child of the caller's span if there is one.

        `started` and the stages are of `time.perf_counter`, so that all begin on one clock.
        """
        api = self._api
        ended = time.time()
        offset = ended - time.perf_counter()
        span = self._tracer.start_span(
            f"POST {route}",
            self._caller.extract(
                {name: call.headers[name] for name in _CONTEXT & set(call.headers)}
            ),
            api.SpanKind.SERVER,
            {
                "http.request.method": "POST",
                "http.route": route,
                "http.response.status_code": status,
                "splinecnn.request_id": call.request_id,
                **{f"splinecnn.{name}": call.note[name] for name in _TOLD if name in call.note},
            },
            start_time=_nanoseconds(started + offset),
        )
        if status >= 500:
            span.set_status(api.StatusCode.ERROR)
        if span.is_recording() and call.stages is not None:
            inside = api.set_span_in_context(span)
            at, stages = call.stages[0] + offset, call.stages[1]
            for stage, duration in stages.items():
                child = self._tracer.start_span(stage, inside, start_time=_nanoseconds(at))
                at += duration
                child.end(_nanoseconds(at))
        span.end(_nanoseconds(ended))

    def close(self) -> None:
        """Send what is still here."""
        self._provider.shutdown()


_CONTEXT = {"traceparent", "tracestate"}
_TOLD = ("model", "nodes", "batch")


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
