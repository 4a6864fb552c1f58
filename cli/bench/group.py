"""``turnout bench``: measuring a server or an engine."""

from __future__ import annotations

import click

from turnout.cli.terminal.lazy_group import LazyCommand, LazyGroup

__all__ = ["command"]

COMMANDS = {
    "serve": LazyCommand("turnout.cli.bench.serve:command", "Load a server, ours or a peer's, and measure."),
    "throughput": LazyCommand(
        "turnout.cli.bench.throughput:command", "Tokens a second of an engine without a server."
    ),
    "latency": LazyCommand("turnout.cli.bench.latency:command", "How long an engine takes for one batch."),
    "startup": LazyCommand("turnout.cli.bench.startup:command", "From `turnout serve` to the first token."),
    "workloads": LazyCommand("turnout.cli.bench.workloads:command", "What --workload takes, and comes to."),
}


@click.group(name="bench", cls=LazyGroup, lazy=COMMANDS)
def command() -> None:
    """Measure, with vLLM's metrics and their names."""
