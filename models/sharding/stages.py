"""The stages of a pipeline: each has neighbouring layers, the first the embedding, the last norm and head.

A stage is the family's whole decoder without the layers of others, so that checkpoints find its parameters by
their names. When its weights are there, a `Stage` goes around it, which passes hidden states on: in the
residual stream, to which what the last of its layers left to add is added, as the next norm would have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.attention import Attend
from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.division import PipelineParts
from turnout.core.interfaces.models import ModelCapabilities
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.decoder import Decoder

__all__ = ["Stage", "StagePlan", "check_layers", "divide_layers", "keep_layers", "renumber", "spec_of_layers"]


@dataclass(frozen=True)
class StagePlan:
    """What one stage has of a model."""

    layers: range
    """Their numbers."""
    line: Collective
    """The ranks with the same shares of all stages, in the order of stages."""
    leads: bool
    """Whether this rank is the one of its stage that has whole logits."""

    @property
    def first(self) -> bool:
        return self.line.rank == 0

    @property
    def last(self) -> bool:
        return self.line.rank == self.line.size - 1


OF_DECODER = PipelineParts("model.layers", "lm_head")


def divide_layers(
    whole: nn.Module, parts: PipelineParts, stages: int, architecture: str
) -> tuple[range, ...]:
    """Returns the layers of each stage, so that the largest is as small as can be, counted in parameters.

    The head counts as half: prompts need it for one position alone. Raises ConfigError where there are more
    stages than layers.
    """
    sizes = [_parameters(layer) for layer in whole.get_submodule(parts.layers).children()]
    if len(sizes) < stages:
        raise ConfigError(
            f"pipeline_parallel_size={stages} cannot divide {architecture}: it has {len(sizes)} layers, and "
            "each stage needs one"
        )
    head = _parameters(whole.get_submodule(parts.head)) // 2
    low, high = max(sizes), sum(sizes) + head
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _filled(sizes, head, stages, middle) else (middle + 1, high)
    found = _filled(sizes, head, stages, low)
    assert found is not None
    return found


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _filled(sizes: Sequence[int], head: int, stages: int, most: int) -> tuple[range, ...] | None:
    """Fills stage after stage up to `most`, from the last on, whose head is there; None: layers are left."""
    stop, found = len(sizes), list[range]()
    for before in reversed(range(stages)):
        first, size = stop, 0 if found else head
        while first > before and size + sizes[first - 1] <= most:
            first -= 1
            size += sizes[first]
        if first == stop:
            return None
        found.append(range(first, stop))
        stop = first
    return None if stop else tuple(reversed(found))


def check_layers(counts: Sequence[int], layers: int, stages: int) -> tuple[range, ...]:
    """Returns the layers of stages that have so many each. Raises ConfigError where that cannot be."""
    if len(counts) != stages or sum(counts) != layers or min(counts) < 1:
        raise ConfigError(
            f"pipeline_layers={','.join(map(str, counts))}: expected {stages} numbers from 1 on, one for "
            f"each stage, that make the model's {layers} layers together"
        )
    ends = [sum(counts[: at + 1]) for at in range(stages)]
    return tuple(range(end - count, end) for end, count in zip(ends, counts, strict=True))


def spec_of_layers(spec: ModelSpec, layers: range) -> ModelSpec:
    """Returns the spec of some layers, for what keeps their keys and values.

    Raises ConfigError where one of them reads those of a layer outside.
    """
    rules = spec.attention[layers.start : layers.stop]
    return replace(
        spec,
        layers=len(layers),
        first_layer=layers.start,
        attention=tuple(_rule(spec, rule, layers) for rule in rules),
    )


def _rule(spec: ModelSpec, rule: LayerAttention, layers: range) -> LayerAttention:
    if rule.kv_from is None:
        return rule
    if rule.kv_from not in layers:
        raise ConfigError(
            f"a pipeline cannot divide {spec.architecture} before layer {layers.start}: a layer behind it "
            f"reads the keys and values of layer {rule.kv_from}; choose other --pipeline-layers"
        )
    return replace(rule, kv_from=rule.kv_from - layers.start)


def keep_layers(decoder: Decoder, plan: StagePlan, spec: ModelSpec) -> None:
    """Leaves a stage's part of a decoder without storage, under the names that it has in the whole one.

    Tied embeddings stay at both ends. Raises ConfigError for layers that cannot be numbered anew.
    """
    stack, kept = decoder.model, nn.ModuleList()
    for number in plan.layers:
        layer = stack.layers[number]
        renumber(layer, number, plan.layers.start, spec)
        kept.add_module(str(number), layer)
    stack.layers = kept
    stack.rotary.of_layer = stack.rotary.of_layer[plan.layers.start : plan.layers.stop]
    if not plan.first:
        stack.before = None
    if not (plan.first or (plan.last and spec.tied_embeddings)):
        del stack.embed_tokens
    if not plan.last:
        del stack.norm
    if not (plan.last or (plan.first and spec.tied_embeddings)):
        del decoder.lm_head


def keep_declared(module: nn.Module, plan: StagePlan) -> None:
    """Leaves a stage's part of a module whose family declares `PipelineParts`."""
    keep: Callable[..., None] = module.keep_stage  # type: ignore[assignment]  # they say that it has it
    keep(plan.layers, first=plan.first, last=plan.last)


def renumber(layer: nn.Module, number: int, first: int, spec: ModelSpec) -> None:
    """Numbers what attends in a layer from `first` on, as keys and values are. Raises ConfigError."""
    attending = [each for each in layer.modules() if type(getattr(each, "layer", None)) is int]
    if not attending or any(each.layer != number for each in attending):
        raise ConfigError(
            f"a pipeline cannot divide {spec.architecture}: its layer {number}, a {type(layer).__name__}, "
            "does not keep its number in an attribute `layer`, as Turnout's attention does"
        )
    for each in attending:
        each.layer = number - first  # type: ignore[assignment]


class Stage(nn.Module):
    """A stage of a model, as a runner calls the whole: its hidden states stand for those of the last stage.

    They have the right number of rows, and no columns but on the last stage. `logits` exchanges what belongs
    to them: the last stage sends it to the first, which returns it; others return none. Every step of a
    runner has an answer of the last stage, so that the first knows when a step is through.
    """

    def __init__(self, model: nn.Module, plan: StagePlan, spec: ModelSpec, dtype: torch.dtype) -> None:
        """model: a decoder, or one whose family declares `PipelineParts`, with this stage's part alone.

        spec: of this rank's share; dtype: of hidden states and logits.
        """
        super().__init__()
        self.model, self.plan, self.dtype = model, plan, dtype
        self.capabilities: ModelCapabilities = getattr(model, "capabilities", ModelCapabilities())
        self.hidden_size, self.vocab_size = spec.hidden_size, spec.vocab_size
        self.held: Tensor | None = None
        """What the first stage has computed and not passed on: `pass_on` does."""

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        plan, given = self.plan, None
        if not plan.first:
            like = torch.empty(len(tokens), self.hidden_size, dtype=self.dtype, device=tokens.device)
            given = plan.line.receive(like, plan.line.rank - 1)
        if isinstance(self.model, Decoder):
            hidden = _through(self.model, plan, given, tokens, positions, attend, rows)
        else:
            hidden = self.model(tokens, positions, attend, hidden=given)
        if plan.last:
            return hidden
        self.held = hidden
        if not (plan.first and plan.leads):
            self.pass_on()
        return hidden.new_empty(len(tokens) if rows is None else len(rows), 0)

    def pass_on(self) -> None:
        """Sends what this stage has computed to the next one."""
        held, self.held = self.held, None
        if held is not None:
            self.plan.line.send(held, self.plan.line.rank + 1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns [rows, vocab_size] on the first stage, and on the last."""
        if self.plan.last:
            logits: Callable[[Tensor], Tensor] = self.model.logits  # type: ignore[assignment]
            return self._answered(logits(hidden) if len(hidden) else hidden.new_empty(0, 1))
        return self._answered(hidden.new_empty(len(hidden), self.vocab_size))

    def shared(self, hidden: Tensor) -> Tensor:
        """Returns the hidden states that `hidden` stands for, on the first stage and on the last."""
        if self.plan.last:
            return self._answered(hidden)
        return self._answered(hidden.new_empty(len(hidden), self.hidden_size))

    def _answered(self, x: Tensor) -> Tensor:
        """Sends x from the last stage to the first, which returns it. Without rows, one number is sent."""
        plan = self.plan
        if plan.leads and (plan.first or plan.last):
            sent = x if len(x) else x.new_zeros(1)
            if plan.last:
                plan.line.send(sent, 0)
            else:
                sent = plan.line.receive(sent, plan.line.size - 1)
                x = sent if len(x) else x
        return x


def _through(
    decoder: Decoder,
    plan: StagePlan,
    given: Tensor | None,
    tokens: Tensor,
    positions: Tensor,
    attend: Attend,
    rows: Tensor | None,
) -> Tensor:
    """Returns what a stage of Turnout's own decoder passes on, or on the last stage what it puts out."""
    stack = decoder.model
    hidden = stack.embed(tokens, positions) if given is None else given
    hidden, delta = stack.through(hidden, positions, attend, rows if plan.last else None)
    if plan.last:
        normed: Tensor = stack.norm.add(hidden, delta)[1]
        return normed
    return hidden if delta is None else hidden + delta
