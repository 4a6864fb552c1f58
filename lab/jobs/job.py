"""The form that every workload takes, wherever it comes from: requests to come, by their lengths.

Traces and generators make jobs; the load generator, the comparison and the simulator read them. A job says
how long a prompt is and what it shares, not what it says: `turnout.lab.jobs.prompts` makes token ids of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Job", "Workload", "seed_of"]


@dataclass(frozen=True, slots=True)
class Job:
    """One request to come."""

    at: float
    """Arrival, in seconds after the workload's beginning; see `think` for later turns of a session."""
    prompt: int
    """Tokens, at least 1."""
    output: int
    """Tokens that it generates: clients ask for exactly so many; 0: its prompt is pooled instead."""
    blocks: tuple[int, ...] = ()
    """Names of the prompt's leading blocks of `block_size` tokens: equal names, equal tokens."""
    block_size: int = 0
    """Tokens; 0 where there are no blocks."""
    session: str = ""
    """Jobs of one session are its turns, in order; "" for a request on its own."""
    think: float | None = None
    """Seconds after the end of the session's previous turn, instead of `at`; None: `at` it is."""
    client: str = ""
    """The client that sends it, as the API's `user`."""
    priority: int = 0
    """Lower is served first, by policies that look at it."""
    deadline_ms: float | None = None
    """Milliseconds after arrival by which it should be finished, as in the API; None: whenever."""
    ttft_deadline_ms: float | None = None
    """The same of its first token."""

    @property
    def deadline(self) -> float | None:
        """In seconds, as requests have it."""
        return None if self.deadline_ms is None else self.deadline_ms / 1000

    @property
    def ttft_deadline(self) -> float | None:
        """In seconds, as requests have it."""
        return None if self.ttft_deadline_ms is None else self.ttft_deadline_ms / 1000


@dataclass(frozen=True)
class Workload:
    """Jobs by arrival, and how they are sent."""

    name: str
    jobs: Sequence[Job]
    concurrency: int | None = None
    """Closed loop: so many at a time, each sent as soon as one ends, whenever due; None: open loop."""
    notes: tuple[str, ...] = ()
    """What a user should know of how the jobs were read, a sentence each without its full stop."""


def seed_of(run: int, index: int) -> int:
    """The sampling seed of a job's request in a run of that seed: the same for every server and arm.

    In 64 bits with a sign, as requests have it; `run` may be any number, such as a date and time.
    """
    return (run * 1_000_003 + index + 2**63) % 2**64 - 2**63
