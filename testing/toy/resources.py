"""The resources that a strategy or a proposer gets at its start, for the toy model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from turnout.core.engine.observers import Observers
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.interfaces.observers import WatchingHook
from turnout.core.interfaces.resources import Companion
from turnout.core.types.model_spec import ModelSpec
from turnout.testing.toy.model import EOS, VOCABULARY, misled_logits
from turnout.testing.toy.runner import ToyRunner, as_tensor, toy_kv

__all__ = ["ToyResources"]


@dataclass
class ToyResources:
    """Implements Resources. Its clock advances by a millisecond with each reading."""

    observers: Observers = field(default_factory=Observers)
    max_batched_tokens: int = 256
    time: float = 0.0

    @property
    def model(self) -> ServedModel:
        return ServedModel(Path(), VOCABULARY, frozenset({EOS}))

    @property
    def spec(self) -> ModelSpec:
        from turnout.testing.toy.attention import toy_spec

        return toy_spec()

    def clock(self) -> float:
        self.time += 1e-3
        return self.time

    def companion(
        self, name: str, *, memory: int | None = None, quantization: str | None = None
    ) -> Companion:
        """A toy for any name, which mostly agrees with the first one, with a pool of its own."""
        kv = toy_kv(512, 4)
        return Companion(Path(), self.spec, ToyRunner(kv, model=misled_logits, values=as_tensor), kv)

    def watch_steps(self, name: str, hook: Callable[..., object]) -> None:
        self.observers.watch_steps(WatchingHook(name, hook))
