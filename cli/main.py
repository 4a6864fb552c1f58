"""The console script ``turnout``."""

from __future__ import annotations

import click

from turnout.cli.terminal.lazy_group import LazyCommand, LazyGroup
from turnout.cli.terminal.streams import escape_unknown_characters
from turnout.core.process import begin_program

__all__ = ["cli", "main"]

COMMANDS = {
    "serve": LazyCommand("turnout.cli.serve:command", "Serve a model over the OpenAI API."),
    "rollout": LazyCommand("turnout.cli.rollout:command", "Replace the engines of a running server."),
    "worker": LazyCommand("turnout.cli.worker:command", "Run an engine for a server elsewhere."),
    "chat": LazyCommand("turnout.cli.chat.command:command", "Talk to a server in the terminal."),
    "bench": LazyCommand("turnout.cli.bench.group:command", "Measure a server or an engine."),
    "compare": LazyCommand("turnout.cli.compare.command:command", "Compare configurations on a workload."),
    "simulate": LazyCommand(
        "turnout.cli.simulate:command", "Serve a workload on a virtual clock, with a cost model of steps."
    ),
    "top": LazyCommand("turnout.cli.top.command:command", "Watch a running server in the terminal."),
    "trace": LazyCommand("turnout.cli.trace:command", "Record what a running server does."),
    "view": LazyCommand("turnout.cli.view:command", "Show a recorded or simulated run in the console."),
    "profile": LazyCommand("turnout.cli.profile:command", "Measure how long steps take on this machine."),
    "quantize": LazyCommand("turnout.cli.quantize:command", "Write a checkpoint with quantized weights."),
    "eval": LazyCommand("turnout.cli.eval:command", "Measure how good a model's predictions are."),
    "doctor": LazyCommand("turnout.cli.doctor:command", "Say what this machine has, and test the kernels."),
    "kernels": LazyCommand("turnout.cli.kernels:command", "Compile the kernels of CPUs for other machines."),
    "plugins": LazyCommand(
        "turnout.cli.plugins.group:command", "List the available policies, or describe one."
    ),
}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turnout", message="turnout %(version)s")
def cli() -> None:
    """Serve large language models, every policy a plugin."""


def main() -> None:
    begin_program()
    escape_unknown_characters()
    cli.main(prog_name="turnout")
