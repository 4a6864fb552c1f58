"""Workloads as options of commands name them."""

from __future__ import annotations

import click

from turnout.lab.jobs.job import Workload
from turnout.lab.traces.tokens import CountTokens, estimated_tokens
from turnout.lab.workloads.source import load_workload

__all__ = ["find_workload"]


def find_workload(spec: str, seed: int, tokens: CountTokens = estimated_tokens) -> Workload:
    """Loads a workload as `load_workload` does, and prints its notes on standard error."""
    workload = load_workload(spec, seed, tokens)
    for note in workload.notes:
        click.echo(f"note: {note}.", err=True)
    return workload
