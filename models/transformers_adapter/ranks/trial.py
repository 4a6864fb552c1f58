"""A small model, divided between two ranks, or into two stages, against the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from turnout.core.interfaces.attention import Attend
from turnout.core.interfaces.division import Division
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.models.sharding.layers import join_ranks
from turnout.models.sharding.plan import ShardPlan, plan_of_division
from turnout.models.transformers_adapter.exchange.proof import largest_difference
from turnout.models.transformers_adapter.ranks.plans import TensorPlan
from turnout.models.transformers_adapter.ranks.threads import Threads, on_threads

__all__ = ["RANKS", "Heads", "SmallModel", "Stageable", "try_parts", "try_stages"]

RANKS = 2


class Heads(NamedTuple):
    """Of a layer, as it attends."""

    queries: int
    keys: int


class SmallModel(Protocol):
    """A small model of transformers, and what it computes."""

    @property
    def rules(self) -> tuple[LayerAttention, ...]:
        """Of its layers."""
        ...

    @property
    def expected(self) -> Tensor:
        """Its logits."""
        ...

    def flat(self, model: nn.Module) -> Tensor:
        """Returns the logits that another model computes for the same tokens."""
        ...


class Stageable(Protocol):
    """What `PipelineParts` says of a module."""

    def keep_stage(self, layers: range, *, first: bool, last: bool) -> None: ...


class TriedParts(NamedTuple):
    """What `RANKS` ranks compute of a small model."""

    difference: float
    """From one device, relative to the largest logit."""
    heads: Sequence[Heads]
    """That a rank has in each layer."""


def try_parts(
    small: SmallModel, models: Sequence[nn.Module], plan: TensorPlan, spec: ModelSpec
) -> TriedParts:
    """Divides the layers of a small model. models: `RANKS` of it, each with all weights; plan: of it; spec:
    of the large one, with the small one's vocabulary. Raises as models do, or ConfigError."""
    spec = replace(spec, layers=len(small.rules), attention=tuple(small.rules))
    division = Division(spec.attention, plan.cuts, plan.ways)

    def logits_of(collective: Threads) -> tuple[Tensor, _Watched]:
        model = models[collective.rank]
        shards = plan_of_division(model, division, spec, collective)
        _take_part(model, shards)
        join_ranks(model, shards)
        watched = _Watched(model, spec.vocab_size)
        return small.flat(watched), watched

    (found, watched), *_ = on_threads(RANKS, logits_of)
    heads = [watched.heads[layer] for layer in sorted(watched.heads)]
    return TriedParts(largest_difference(found, small.expected), heads)


def try_stages(small: SmallModel, stages: Sequence[Stageable], whole: nn.Module) -> float:
    """Returns how much two stages differ from the whole, relative to the largest logit.

    stages: two of the model, each with all weights.
    """
    middle = _middle(small.rules)
    first, second = stages
    first.keep_stage(range(middle), first=True, last=False)
    second.keep_stage(range(middle, len(small.rules)), first=False, last=True)
    assert isinstance(first, nn.Module) and isinstance(second, nn.Module)
    return largest_difference(small.flat(_Line(first, second, middle)), small.flat(whole))


def _middle(rules: Sequence[LayerAttention]) -> int:
    """Returns the layer nearest to the middle before which no later one reads an earlier one's keys."""
    count = len(rules)
    fits = [
        at for at in range(1, count) if all(rule.kv_from is None or rule.kv_from >= at for rule in rules[at:])
    ]
    return min(fits, key=lambda at: abs(2 * at - count), default=count // 2)


def _take_part(model: nn.Module, shards: ShardPlan) -> None:
    """Leaves a rank's part of the weights, as loading does."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        owner, _, attribute = name.rpartition(".")
        if (part := shards.parts.get(name)) is not None:
            value = part.of(parameter)
        elif shards.rank and attribute == "bias" and owner in shards.summed:
            value = torch.zeros_like(parameter)
        else:
            continue
        if parameter not in made:
            made[parameter] = nn.Parameter(value.contiguous(), requires_grad=False)
        setattr(model.get_submodule(owner), attribute, made[parameter])


class _Watched(nn.Module):
    """Notes how many heads a model attends with. Its logits have all rows, on ranks that have none too."""

    def __init__(self, model: nn.Module, vocab_size: int) -> None:
        super().__init__()
        self.model, self.vocab_size = model, vocab_size
        self.heads: dict[int, Heads] = {}

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        def watching(layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, *sinks: Tensor) -> Tensor:
            self.heads[layer] = Heads(q.shape[1], 0 if k is None else k.shape[1])
            return attend(layer, q, k, v, *sinks)

        found: Tensor = self.model(tokens, positions, watching)
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.model.logits(hidden)  # type: ignore[operator]
        return found if len(found) else hidden.new_zeros(len(hidden), self.vocab_size)


class _Line(nn.Module):
    """Two stages, one after the other."""

    def __init__(self, first: nn.Module, second: nn.Module, middle: int) -> None:
        super().__init__()
        self.first, self.second, self.middle = first, second, middle

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        def later(layer: int, *given: Tensor | None) -> Tensor:
            return attend(layer + self.middle, *given)  # type: ignore[arg-type]

        hidden = self.first(tokens, positions, attend)
        found: Tensor = self.second(tokens, positions, later, hidden=hidden)
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.second.logits(hidden)  # type: ignore[operator]
        return found
