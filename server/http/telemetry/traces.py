"""Sends the spans of requests to an OpenTelemetry collector, from a thread of its own.

A collector that is slow, or gone, costs nothing but its spans: at most `WAITING` requests wait for the
thread, and those beyond are not traced. Nothing here is imported unless traces are asked for.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from turnout.core.clock import monotonic
from turnout.core.version import own_version
from turnout.server.http.records.record import RequestRecord
from turnout.server.http.telemetry.spans import Span, spans_of

__all__ = ["CLOSE_SECONDS", "Traces", "resource"]

logger = logging.getLogger(__name__)

WAITING = 256
"""Requests whose spans are still to be made."""
CLOSE_SECONDS = 2.0
"""How long the server waits at its end for the collector to take what is left."""
LIBRARIES = ("opentelemetry.exporter", "opentelemetry.sdk", "urllib3")
_PROPAGATOR = TraceContextTextMapPropagator()


class Traces:
    """Has the spans of each record made and sent."""

    def __init__(self, endpoint: str) -> None:
        quiet_libraries()
        self._exporter = _Told(OTLPSpanExporter(endpoint=endpoint), endpoint)
        self._provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("turnout", own_version())
        self._records: queue.Queue[RequestRecord | None] = queue.Queue(WAITING)
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def write(self, record: RequestRecord) -> None:
        """Have the spans of a request that has ended made, if it is to be traced."""
        if not record.traced:
            return
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self._lost += 1
            if self._lost == 1:
                logger.warning("requests end faster than their spans can be made; some are not traced")

    def close(self) -> None:
        """Send what is left, for at most `CLOSE_SECONDS`: a collector that is gone holds up no more."""
        closing = threading.Thread(target=self._close, name="traces-end", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            logger.warning("the collector of traces takes too long; the last spans are lost")
            self._exporter.shutdown()  # which does not try again

    def _close(self) -> None:
        self._records.put(None)
        self._thread.join()
        self._provider.shutdown()

    def _run(self) -> None:
        while (record := self._records.get()) is not None:
            try:
                offset = time.time() - monotonic()
                parent = _PROPAGATOR.extract(record.trace_headers, context=Context())
                self._make(spans_of(record), parent, offset, SpanKind.SERVER)
            except Exception:
                logger.exception("the spans of a request could not be made")

    def _make(self, span: Span, parent: Context, offset: float, kind: SpanKind) -> None:
        made = self._tracer.start_span(
            span.name, parent, kind, span.attributes, start_time=_nanoseconds(span.start + offset)
        )
        if made.is_recording():
            below = trace.set_span_in_context(made, parent)
            for child in span.children:
                self._make(child, below, offset, SpanKind.INTERNAL)
            if span.error:
                made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(_nanoseconds(span.end + offset))


class _Told(SpanExporter):
    """An exporter that says once that its collector cannot be reached, and once that it can again."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner, self._endpoint = inner, endpoint
        self._well = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        self._tell(result is SpanExportResult.SUCCESS)
        return result

    def _tell(self, well: bool) -> None:
        if self._well and not well:
            logger.warning("traces cannot be sent to %s, and are lost until they can", self._endpoint)
        elif well and not self._well:
            logger.info("traces are sent to %s again", self._endpoint)
        self._well = well

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._inner.force_flush(timeout_millis)


def resource(environment: Mapping[str, str] | None = None) -> Resource:
    """The source of what is sent; ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` go first."""
    found = os.environ if environment is None else environment
    named = "OTEL_SERVICE_NAME" in found or "service.name=" in found.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {"service.version": own_version()} | ({} if named else {"service.name": "turnout"})
    return Resource.create(own).merge(OTELResourceDetector().detect())


def quiet_libraries() -> None:
    """Keep the libraries from a line of their own for each attempt; what fails is told once."""
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
