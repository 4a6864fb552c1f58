"""Layers that put ranks' shares together. Each goes around a layer that computes one share, however it does.

They are put in place when all weights are there: quantizers and packing have seen plain, narrower layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.division import Way
from turnout.kernels.collectives.shm import native_group
from turnout.kernels.integers import magnitudes
from turnout.models.decoder.experts import Experts
from turnout.models.decoder.layers import Norm
from turnout.models.decoder.packed import LayerCapabilities, layer_capabilities
from turnout.models.sharding.plan import ShardPlan

__all__ = [
    "Added",
    "Joined",
    "OwnInputs",
    "Scaled",
    "Shared",
    "SplitEmbedding",
    "SplitHead",
    "SplitNorm",
    "Summed",
    "SummedExperts",
    "join_ranks",
]


def join_ranks(module: nn.Module, plan: ShardPlan | None) -> None:
    """Puts these layers around those of `module` whose inputs or outputs are split; None: around none."""
    if plan is None or plan.collective.size == 1:
        return
    collective = plan.collective
    experts = {name for name, layer in module.named_modules() if isinstance(layer, Experts)}
    inside = tuple(f"{name}." for name in experts)
    for name in plan.summed:
        layer = module.get_submodule(name)
        if not name.startswith(inside):
            layer = added_up(layer, collective)
        elif layer_capabilities(layer).scaled is not None:
            layer = Scaled(layer, collective)
        module.set_submodule(name, layer)
    for name in experts:
        module.set_submodule(name, SummedExperts(module.get_submodule(name), collective))
    for name in plan.norms:
        norm = module.get_submodule(name)
        module.set_submodule(name, SplitNorm(norm, collective))
    for name in plan.embeddings:
        rows = plan.spec.vocab_size
        module.set_submodule(name, SplitEmbedding(module.get_submodule(name), rows, collective))
    if plan.head is not None:
        head = module.get_submodule(plan.head)
        module.set_submodule(plan.head, SplitHead(head, plan.vocab_size, collective))
    for name, way in plan.declared.items():
        module.set_submodule(name, DECLARED[way](module.get_submodule(name), collective))


def added_up(layer: nn.Module, collective: Collective) -> nn.Module:
    """Returns what puts out the same on all ranks, each of which has a part of the inputs of `layer`."""
    abilities = layer_capabilities(layer)
    if abilities.exact is not None and (exact := abilities.exact(collective)) is not None:
        return exact
    return Summed(layer if abilities.scaled is None else Scaled(layer, collective), collective)


class _SplitInputs(nn.Module):
    """A linear layer of whose inputs each rank has a part."""

    def __init__(self, layer: nn.Module, collective: Collective) -> None:
        super().__init__()
        self.layer, self.collective = layer, collective

    @property
    def capabilities(self) -> LayerCapabilities:
        """Of the layer, for kernels that compute all layers in one call, and exchange numbers in it."""
        weights, group = layer_capabilities(self.layer).native_weights, native_group(self.collective)
        if group is None:
            return LayerCapabilities()
        return LayerCapabilities(native_weights=weights, native_group=group)


class Scaled(_SplitInputs):
    """A linear layer that rounds its inputs, which are split: all ranks by the largest of a whole row."""

    def __init__(self, layer: nn.Module, collective: Collective) -> None:
        super().__init__(layer, collective)
        scaled = layer_capabilities(layer).scaled
        assert scaled is not None
        self._scaled = scaled

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = self._scaled(rows, self.collective.all_reduce_max(magnitudes(rows)))
        return out.view(*x.shape[:-1], -1)


class Summed(_SplitInputs):
    """A linear layer whose inputs are split: ranks add up what they put out. The bias is rank 0's."""

    def forward(self, x: Tensor) -> Tensor:
        return self.collective.all_reduce(self.layer(x))


class SummedExperts(nn.Module):
    """Experts of which each rank has a part: what all chosen ones put out is added up at once."""

    def __init__(self, experts: nn.Module, collective: Collective) -> None:
        super().__init__()
        self.experts, self.collective = experts, collective

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return self.collective.all_reduce(self.experts(x, chosen, weights))


class OwnInputs(nn.Module):
    """A linear layer that is given all inputs, of which this rank takes its own."""

    def __init__(self, layer: nn.Module, collective: Collective) -> None:
        """layer: what ranks add up already."""
        super().__init__()
        self.layer, self.collective = layer, collective

    def forward(self, x: Tensor) -> Tensor:
        width = x.shape[-1] // self.collective.size
        out: Tensor = self.layer(x.narrow(-1, self.collective.rank * width, width).contiguous())
        return out


class Joined(nn.Module):
    """A linear layer whose outputs are split, and wanted whole on every rank."""

    def __init__(self, layer: nn.Module, collective: Collective) -> None:
        super().__init__()
        self.layer, self.collective = layer, collective

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., outputs] of all ranks. x: [..., inputs]."""
        out: Tensor = self.layer(x)
        parts = self.collective.all_gather(out.reshape(1, -1, out.shape[-1]))
        return parts.transpose(0, 1).reshape(*out.shape[:-1], -1)


class Added(nn.Module):
    """Any module of which each rank computes a part of every sum."""

    def __init__(self, module: nn.Module, collective: Collective) -> None:
        super().__init__()
        self.module, self.collective = module, collective

    def forward(self, *given: object, **named: object) -> Tensor:
        return self.collective.all_reduce(self.module(*given, **named).contiguous())


class Shared(nn.Module):
    """A module that is whole on every rank, whose output is added up all the same, and is linear."""

    def __init__(self, module: nn.Module, collective: Collective) -> None:
        super().__init__()
        self.module, self.collective = module, collective

    def forward(self, x: Tensor, *given: object, **named: object) -> object:
        return self.module(x / self.collective.size, *given, **named)


DECLARED: Mapping[Way, Callable[[nn.Module, Collective], nn.Module]] = {
    Way.JOINED: Joined,
    Way.OWN_INPUTS: OwnInputs,
    Way.ADDED: Added,
    Way.SHARED: Shared,
}
"""The layers of what families declare, beside those that Turnout's own decoder has, too."""


class SplitNorm(Norm):
    """The root mean square norm of what is split: ranks add up squares.

    Where several ranks have the same KV head, each head counts as often as every other.
    """

    weight: Tensor

    def __init__(self, like: nn.Module, collective: Collective) -> None:
        """like: `RMSNorm`, or what computes the same."""
        super().__init__()
        self.weight = like.get_parameter("weight")
        self.eps = float(getattr(like, "eps"))  # noqa: B009  # modules' attributes are not typed
        self.collective = collective

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        squares = self.collective.all_reduce(wide.pow(2).sum(-1, keepdim=True))
        wide = wide * torch.rsqrt(squares / (x.shape[-1] * self.collective.size) + self.eps)
        return self.weight * wide.to(x.dtype)


class SplitEmbedding(nn.Module):
    """An embedding of which each rank has the rows of neighbouring tokens; the others add 0."""

    def __init__(self, rows: nn.Module, count: int, collective: Collective) -> None:
        super().__init__()
        self.rows, self.collective = rows, collective
        self.count, self.first = count, collective.rank * count

    def forward(self, tokens: Tensor) -> Tensor:
        own = tokens - self.first
        others = (own < 0) | (own >= self.count)
        found: Tensor = self.rows(own.clamp(0, self.count - 1))
        return self.collective.all_reduce(found.masked_fill(others[:, None], 0.0))


class SplitHead(nn.Module):
    """A head of which each rank has the logits of neighbouring tokens; rank 0 gets all, others none."""

    def __init__(self, layer: nn.Module, vocab_size: int, collective: Collective) -> None:
        super().__init__()
        self.layer, self.vocab_size, self.collective = layer, vocab_size, collective

    def forward(self, x: Tensor) -> Tensor:
        """Returns [rows, vocab_size] on rank 0, and [0, vocab_size] elsewhere. x: [rows, hidden_size]."""
        gathered = self.collective.gather(self.layer(x))
        if gathered is None:
            return x.new_empty(0, self.vocab_size)
        return gathered[:, : self.vocab_size].contiguous()
