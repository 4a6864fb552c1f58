"""A collector of OpenTelemetry in this process: it takes traces and metrics over HTTP, and decodes them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Receiver", "attributes", "receiver"]


class Receiver:
    """What has come."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.metrics: list[Any] = []
        self.headers: list[dict[str, str]] = []

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def of_request(self, id: str) -> list[Span]:
        """The server's span of a request by its id, and then those below, by their start; as far as there."""
        for server in self.spans:
            if attributes(server).get("turnout.request.id") == id:
                below = [span for span in self.spans if span.parent_span_id == server.span_id]
                return [server, *sorted(below, key=lambda span: (span.start_time_unix_nano, span.name))]
        return []

    def take(self, path: str, body: bytes) -> None:
        if path.endswith("/traces"):
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(attributes(traced.resource))
                for scope in traced.scope_spans:
                    self.spans += scope.spans
        else:
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.resources.append(attributes(measured.resource))
                for scope in measured.scope_metrics:
                    self.metrics += scope.metrics


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in of.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return (
        [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
    )


@contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            found.take(self.path, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Receiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
