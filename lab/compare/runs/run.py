"""The records of one arm serving the workload once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from turnout.lab.results.record import Record

__all__ = ["EngineSample", "Run"]


class EngineSample(NamedTuple):
    """An engine's state after a step."""

    at: float
    """Seconds after the run's beginning."""
    running: int
    waiting: int
    kv_used: float
    """Share of the KV pool that requests hold."""


@dataclass
class Run:
    arm: str
    repeat: int
    """From 0; runs of one repeat served the same requests."""
    records: list[Record]
    """In the order of the workload's jobs."""
    samples: list[EngineSample] = field(default_factory=list)
    """In order of time, thinned."""
    preemptions: int = 0
    policy_faults: int = 0
    """Answers of the scheduling policy that could not be carried out."""
    described: list[str] = field(default_factory=list)
    """The engine's summary of itself: model, policies, memory."""
    trace: str = ""
    """The file that has its trace; empty: none was kept."""
