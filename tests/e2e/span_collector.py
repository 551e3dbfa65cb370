"""A collector of OpenTelemetry spans in this process, and the flags of a server that sends its spans there."""

from __future__ import annotations

import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(ThreadingHTTPServer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: queue.Queue[Any] = queue.Queue()
        super().__init__(("127.0.0.1", 0), _Door)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def take(self, count: int) -> list[Any]:
        """So many spans, as they come."""
        return [self.spans.get(timeout=10) for _ in range(count)]


class _Door(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        message = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.server.spans.put(span)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def opentelemetry_flags(url: str, rate: int = 1) -> list[str]:
    settings = ["mode=opentelemetry", "level=TIMESTAMPS", f"rate={rate}", f"opentelemetry,url={url}"]
    return [f"--trace-config={setting}" for setting in [*settings, "opentelemetry,bsp_schedule_delay=50"]]
