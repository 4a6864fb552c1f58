"""What a decoding strategy may use: the served model, and further models of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from turnout.core.clock import Clock
from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.kv import KVCache
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.types.model_spec import ModelSpec

__all__ = ["Companion", "Resources"]


@dataclass(frozen=True)
class Companion:
    """A model besides the served one, with KV memory of its own.

    Its memory is keyed by the sequences of the served model: reserve a `Span` of one, run a `Chunk` of it.
    """

    folder: Path
    """The folder of its checkpoint."""
    spec: ModelSpec
    """The shape of the model."""
    runner: Runner
    """Runs a ``Plan`` through the model."""
    kv: KVCache
    """The host half of its KV memory."""


class Resources(Protocol):
    """Given to each strategy once, when the model is in memory and the size of its KV pool is not set yet."""

    @property
    def model(self) -> ServedModel:
        """The served model."""
        ...

    @property
    def spec(self) -> ModelSpec:
        """The shape of the served model."""
        ...

    @property
    def max_batched_tokens(self) -> int:
        """How many tokens a step computes at most."""
        ...

    @property
    def clock(self) -> Clock:
        """The engine's clock, the only one to read."""
        ...

    def companion(
        self, name: str, *, memory: int | None = None, quantization: str | None = None
    ) -> Companion:
        """Loads another model, by any name that `--model` takes, on the same device in the same dtype.

        It is quantized as `quantization` says, not as the served model is; None: not at all. Its KV
        pool has `memory` bytes; None: as many token positions as the served model's. Its memory is part of
        what is printed at start-up. Raises ModelError or ConfigError.
        """
        ...

    def watch_steps(self, name: str, hook: Callable[..., object]) -> None:
        """Registers ``hook(step=StepRecord)`` to be called after each step, as an observer of that name."""
        ...
