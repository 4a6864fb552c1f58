"""Measures how fast each scheme serves a model: engines in processes of their own, which take turns.

Every round all of them serve the same requests, so a ratio is of turns that followed one another: one request
of 128 tokens in and 64 out (W1 of `cpu_peers`), and 32 of them at once (W2).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cpu_peers import Figures, features, machine, measure, ratio, shown
from peers.environments import OWN
from peers.peers import THIS_CHECKOUT, Setting
from peers.process import Worker

from turnout.models.hub.resolve import resolve_model

__all__ = ["HEADINGS", "conditions", "serve"]

WORKLOADS = ("W1", "W2")
HEADINGS = ("one request", "times as fast", "32 requests", "times as fast")


def serve(model: str, schemes: Sequence[str], rounds: int) -> dict[str, tuple[str, ...]]:
    """Cells under `HEADINGS`, by scheme. The first scheme is what the others are compared with."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        setting = Setting(resolve_model(model), False, "auto", os.cpu_count() or 1, Path(folder))
        workers = [running.enter_context(_engine(setting, scheme)) for scheme in schemes]
        figures = measure(workers, list(WORKLOADS), rounds, 1)
    return {scheme: _cells(figures[0], found) for scheme, found in zip(schemes, figures, strict=True)}


def conditions(rounds: int) -> str:
    return f"{machine()} ({features()}), {os.cpu_count()} threads; medians of {rounds} rounds."


@contextmanager
def _engine(setting: Setting, scheme: str) -> Iterator[Worker]:
    arguments = [str(setting.model), setting.dtype, "auto", scheme, str(setting.threads), "auto"]
    worker = setting.worker(scheme, "turnout_worker.py", arguments, OWN, THIS_CHECKOUT)
    try:
        yield worker
    finally:
        worker.stop()


def _cells(plain: Figures, found: Figures) -> tuple[str, ...]:
    cells = []
    for name in WORKLOADS:
        faster = "" if found is plain else ratio(found.rates[name], plain.rates[name])
        cells += [shown(name, found.rates[name]), faster]
    return tuple(cells)
