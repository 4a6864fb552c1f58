"""Checkpoints: where a sequence may be gone on from, by others that begin as it does."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NOWHERE", "Checkpoints"]


class Checkpoints(NamedTuple):
    """Where other sequences may go on that begin as one does: in blocks; 0: nowhere."""

    start: int = 0
    """Where it went on itself from what was cached."""
    branch: int = 0
    """Where it leaves all that is known."""
    prompt: int = 0
    """Where its prompt ends. A prompt that is alike often parts from it a little before."""


NOWHERE = Checkpoints()
