"""``turnout bench``: measuring a server or an engine."""

from __future__ import annotations

import click

from turnout.cli.terminal.lazy_group import LazyCommand, LazyGroup

__all__ = ["command"]

COMMANDS = {
    "serve": LazyCommand(
        "turnout.cli.bench.serve:command", "Measure a server under load, Turnout's or another."
    ),
    "throughput": LazyCommand(
        "turnout.cli.bench.throughput:command", "Measure an engine's throughput, without a server."
    ),
    "latency": LazyCommand(
        "turnout.cli.bench.latency:command", "Measure how long an engine takes for a batch."
    ),
    "startup": LazyCommand(
        "turnout.cli.bench.startup:command", "Measure the time from `turnout serve` to the first token."
    ),
    "workloads": LazyCommand("turnout.cli.bench.workloads:command", "List and describe workloads."),
}


@click.group(name="bench", cls=LazyGroup, lazy=COMMANDS)
def command() -> None:
    """Measure a server or an engine, with vLLM's metrics and their names."""
