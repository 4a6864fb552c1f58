"""Measures what records of requests cost: CPU time of the server a request, by what it keeps of them.

Four servers of the embedded model: one that logs no request, one that logs each as text, one as JSON, and one
that sends each as a trace by OpenTelemetry to a collector in this process, and logs none. They take turns at
the same requests. The interval is of the difference from the server that keeps nothing, by resampling turns.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import click

sys.path.insert(0, str(Path(__file__).parents[1]))  # bench's own modules

from peers.server import Server, free_port
from watching import Load, apart

UNLOGGED = ("--disable-access-log-for-endpoints", "/v1/completions")
MODEL = "turnout-tiny"


class Collector(BaseHTTPRequestHandler):
    """Takes whatever comes."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@click.command(help=__doc__)
@click.option("--requests", default=64, show_default=True, help="At once.")
@click.option("--tokens", default=4, show_default=True, help="To generate for each.")
@click.option("--turns", default=20, show_default=True, help="Of each server.")
def main(requests: int, tokens: int, turns: int) -> None:
    """Print the figures."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        collector = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Collector))
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        stack.callback(collector.shutdown)
        settings = {
            "nothing": UNLOGGED,
            "text": (),
            "JSON": ("--log-format", "json"),
            "OpenTelemetry": (
                *UNLOGGED,
                *("--otlp-traces-endpoint", f"http://127.0.0.1:{collector.server_port}/v1/traces"),
            ),
        }
        loads = {}
        for name, flags in settings.items():
            command = [sys.executable, "-m", "turnout", "serve", MODEL, "--port", str(port := free_port())]
            command += ["--max-num-seqs", str(requests), "--kv-memory", "64MiB", *flags]
            variables = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
            server = Server("turnout", command, variables, Path(folder) / f"{name}.log", port)
            stack.callback(server.stop)
            loads[name] = Load(server, port, requests, 16, tokens)
            loads[name].turn()
        taken: dict[str, list[float]] = {name: [] for name in loads}
        for turn in range(turns):
            for name in list(loads)[:: 1 if turn % 2 else -1]:
                taken[name].append(loads[name].turn().server * tokens)
    click.echo(f"{turns} turns of {requests} requests of {tokens} tokens; CPU microseconds of the server")
    base = taken["nothing"]
    for name, found in taken.items():
        share, low, high = (part * statistics.fmean(base) for part in apart(base, found))
        more = "" if found is base else f"{share:+8.0f} ({low:+.0f} to {high:+.0f})"
        click.echo(f"{name:<16}{statistics.median(found):>8.0f}{more}")


if __name__ == "__main__":
    main()
