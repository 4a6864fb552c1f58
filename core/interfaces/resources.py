"""What a decoding strategy may build on: the model that is served, and models of its own beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from turnout.core.clock import Clock
from turnout.core.interfaces.kv import KVCache
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.interfaces.runner import Runner
from turnout.core.types.model_spec import ModelSpec

__all__ = ["Companion", "Resources"]


@dataclass(frozen=True)
class Companion:
    """Another model beside the one that is served, with KV memory of its own.

    Its memory is keyed by the same sequences: reserve a `Span` of one, run a `Chunk` of it.
    """

    folder: Path
    """Of its checkpoint."""
    spec: ModelSpec
    """Its shape."""
    runner: Runner
    """Runs a ``Plan`` through it."""
    kv: KVCache
    """The host half of its KV memory."""


class Resources(Protocol):
    """Given to every strategy once, when the model is in memory and its KV pool has not been sized yet."""

    @property
    def model(self) -> ServedModel:
        """What is served."""
        ...

    @property
    def spec(self) -> ModelSpec:
        """Its shape."""
        ...

    @property
    def max_batched_tokens(self) -> int:
        """Tokens that a step computes at most."""
        ...

    @property
    def clock(self) -> Clock:
        """The engine's: the only one to be read."""
        ...

    def companion(self, name: str, *, memory: int | None = None, quantization: str = "none") -> Companion:
        """Load another model, by whatever name `--model` could have, on the same device in the same dtype.

        It is quantized as `quantization` says, not as the served model is.
        Its KV pool has `memory` bytes; None: as many token positions as the served model's will have.
        Raises ModelError or ConfigError. What it takes is part of the sums printed at start-up.
        """
        ...

    def watch_steps(self, name: str, hook: Callable[..., object]) -> None:
        """Have ``hook(step=StepRecord)`` called after each step, like an observer of that name."""
        ...
