"""Shows a comparison's progress on standard error."""

from __future__ import annotations

from collections.abc import Callable

import click

from turnout.lab.compare.runs.child import RunWatch
from turnout.lab.compare.runs.experiment_spec import ExperimentSpec
from turnout.lab.compare.runs.order import Turn

__all__ = ["watching"]


def watching(spec: ExperimentSpec, terminal: bool) -> Callable[[Turn], RunWatch]:
    """Prints a line for each run; in a terminal the line counts the requests."""
    total, begun = spec.repeats * len(spec.arms), 0

    def begin(turn: Turn) -> RunWatch:
        nonlocal begun
        begun += 1
        title = f"run {begun} of {total}: {turn.arm.name}, repeat {turn.repeat + 1}"
        click.echo(title, err=True, nl=not terminal)

        def watch(done: int, requests: int) -> None:
            if terminal:
                click.echo(f"\r{title}, {done} of {requests} requests", err=True, nl=done == requests)

        return watch

    return begin
