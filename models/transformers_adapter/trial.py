"""A small model with random weights, and two sequences: what checks at load compare with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from turnout.core.types.layer_attention import LayerAttention
from turnout.models.transformers_adapter.building import build_filled
from turnout.models.transformers_adapter.exchange.dense import DenseAttend
from turnout.models.transformers_adapter.exchange.float64 import Float64, widen
from turnout.models.transformers_adapter.exchange.watched_linears import Watched, watched_linears
from turnout.models.transformers_adapter.rules import read_rules

__all__ = ["Trial", "difference_beyond_rounding", "on_one_thread", "spread_weights"]

DOUBTFUL = 1e-2
"""The largest difference that rounding in float32 may have made, where a model amplifies it."""

STEPS = ((21, 11), (16, 18))
"""Tokens of two sequences in each step: the second step reads keys of the first."""


@dataclass(frozen=True)
class Trial:
    """A model of transformers, filled, and the tokens that it is tried with."""

    config: PreTrainedConfig
    model: PreTrainedModel
    rules: tuple[LayerAttention, ...]
    sequences: tuple[Tensor, Tensor]
    wide: bool = False
    """It computes in float64."""

    @classmethod
    def of(
        cls, config: PreTrainedConfig, seed: int = 0, rules: tuple[LayerAttention, ...] | None = None
    ) -> Trial:
        """config: a small one; rules: of its layers; None: they are read off a dry run."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = build_filled(config, "eager")
            spread_weights(model)
            first, second = (
                torch.randint(3, config.vocab_size, (sum(step[i] for step in STEPS),)) for i in range(2)
            )
        rules = rules or read_rules(config, config.max_position_embeddings)
        return cls(config, model, rules, (first, second))

    @cached_property
    def in_float64(self) -> Trial:
        """The same model, computed in float64."""
        model = copy.deepcopy(self.model)
        widen(model)
        return replace(self, model=model, wide=True)

    @cached_property
    @torch.no_grad()
    def expected(self) -> Tensor:
        """The logits of both sequences, each computed alone, as transformers does."""
        with self._arithmetic():
            alone = (self.model(each[None], use_cache=False).logits[0] for each in self.sequences)
            return torch.cat(list(alone))

    @cached_property
    def watched(self) -> Watched:
        """What its linear layers are used for."""
        linear = {name: layer for name, layer in self.model.named_modules() if type(layer) is nn.Linear}
        with watched_linears(linear) as seen, torch.no_grad():
            self.model(self.sequences[0][None], use_cache=False)
        return seen

    def fill(self, model: nn.Module) -> None:
        """Gives a model, with parameters of the same names, the weights of this one."""
        model.load_state_dict(self.model.state_dict(), strict=False, assign=True)
        if self.wide:
            widen(model)

    @torch.no_grad()
    def flat(self, model: nn.Module, start: int = 0) -> Tensor:
        """Returns the logits of both sequences, computed in flat batches.

        start: the position of the first token.
        """
        attend, done = DenseAttend(self.rules, len(self.sequences)), [0, 0]
        out: list[list[Tensor]] = [[], []]
        for step in STEPS:
            attend.lengths = step
            with self._arithmetic():
                logits = _computed(model, attend, self._spans(done, step), start)
            for rows, part in zip(out, torch.split(logits, list(step)), strict=True):
                rows.append(part)
            done = [at + count for at, count in zip(done, step, strict=True)]
        return torch.cat([torch.cat(rows) for rows in out])

    def _arithmetic(self) -> AbstractContextManager[object]:
        return Float64() if self.wide else nullcontext()

    def _spans(self, done: Sequence[int], counts: Sequence[int]) -> list[tuple[int, Tensor]]:
        """Returns for each sequence its next position, and as many tokens from there on."""
        return [
            (at, tokens[at : at + count])
            for at, count, tokens in zip(done, counts, self.sequences, strict=True)
        ]


def _computed(
    model: nn.Module, attend: DenseAttend, spans: Sequence[tuple[int, Tensor]], start: int
) -> Tensor:
    tokens = torch.cat([each for _, each in spans])
    positions = torch.cat([torch.arange(start + at, start + at + len(each)) for at, each in spans])
    logits: Tensor = model.logits(model(tokens, positions, attend))  # type: ignore[operator]
    return logits


def difference_beyond_rounding(trial: Trial, difference: Callable[[Trial], float], most: float) -> float:
    """Returns what `difference` finds; where it finds a little more than `most`, what it finds in float64.

    Some models amplify what rounding makes, and how much rounding makes depends on the CPU.
    """
    found = difference(trial)
    if not most < found <= DOUBTFUL:
        return found
    try:
        return difference(trial.in_float64)
    except Exception:  # some operators know no float64: what float32 says stands
        return found


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Lets PyTorch compute on one thread: others would only wait for so little work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def spread_weights(model: PreTrainedModel) -> None:
    """Draws weights that make tokens and positions matter; those a model starts with are too small."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, 0.2)
        elif parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.tie_weights()
