"""Reads transformers' plans of tensor and pipeline parallelism, as far as they say what a forward needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import nn
from transformers import PreTrainedModel

from turnout.core.errors import ConfigError
from turnout.core.interfaces.division import Cut, PipelineParts, Way
from turnout.core.types.layer_attention import LayerAttention
from turnout.models.transformers_adapter.exchange.places import without_numbers

__all__ = ["StageNames", "TensorPlan", "stage_names", "tensor_plan", "with_shared_keys"]

OUTPUTS = ("colwise", "colwise_gather_output", "colwise_rep", "packed_colwise")
"""Styles that divide what a linear layer puts out; `colwise_rep` is an older name of the second."""
INPUTS = ("rowwise", "rowwise_split_input", "rowwise_rep", "packed_rowwise")
"""Styles that divide what it takes in."""
WAYS: Mapping[str, Way] = {
    "colwise_gather_output": Way.JOINED,
    "colwise_rep": Way.JOINED,
    "rowwise": Way.SUMMED,
    "rowwise_split_input": Way.OWN_INPUTS,
    "rowwise_rep": Way.OWN_INPUTS,
    "moe_tp_experts": Way.ADDED,
    "all_reduce": Way.ADDED,
    "moe_identity_expert": Way.SHARED,
}
WHOLE = (
    *("replicate", "replicated_with_grad_allreduce", "mla_kv_a_proj", "local_params"),
    *("embedding_rowwise", "embedding_colwise"),
)
"""Styles that a forward without gradients needs nothing of; embeddings are divided as Turnout's own."""


NUMBER = re.compile(r"\.(\d+)\.")
"""That of a layer, in the name of a parameter."""


class TensorPlan(NamedTuple):
    """What `Division` has of a module."""

    cuts: Mapping[str, Cut]
    ways: Mapping[str, Way]


def tensor_plan(causal: PreTrainedModel, vocab_size: int) -> TensorPlan:
    """Returns what transformers' plan says. Raises ConfigError where there is none that is known."""
    plan: Mapping[str, str] = getattr(causal, "tp_plan", None) or {}
    cuts: dict[str, Cut] = {}
    ways: dict[str, Way] = {}
    ends = dict(_ends(causal, vocab_size))
    for name, module in causal.named_modules():
        style = plan.get(without_numbers(name))
        if style is not None and name not in ends:
            if style not in (*OUTPUTS, *INPUTS, *WHOLE, *WAYS):
                raise ConfigError(
                    f"tensor_parallel_size: transformers' plan has {name} of {type(module).__name__} as "
                    f"{style!r}, which is not known here; {_instead(causal)}"
                )
            _note_module(name, module, style, cuts, ways)
        for own, parameter in module.named_parameters(recurse=False):
            style = plan.get(without_numbers(f"{name}.{own}"))
            if style in (*OUTPUTS, *INPUTS):
                cuts[f"{name}.{own}"] = _cut(style, parameter.dim())
    if not cuts:
        raise ConfigError(
            f"tensor_parallel_size: transformers has no plan by which ranks divide the layers of "
            f"{type(causal).__name__} (its tp_plan); {_instead(causal)}"
        )
    return TensorPlan(cuts, {**ways, **ends})


def _instead(causal: PreTrainedModel) -> str:
    """Says what to take where a model's layers cannot be divided."""
    layers: int = causal.config.get_text_config().num_hidden_layers
    staged = stage_names(causal, layers) is not None
    return f"take {'--pipeline-parallel-size, or replicas' if staged else 'replicas, or one device'}"


def with_shared_keys(
    plan: TensorPlan, keys: Collection[str], rules: Sequence[LayerAttention], parts: int
) -> TensorPlan:
    """Returns a plan by which neighbouring ranks have the same KV head, in layers with fewer of them.

    keys: parameters of keys and values, without the numbers of layers; rules: of the layers.
    """
    cuts = dict(plan.cuts)
    for name, cut in plan.cuts.items():
        number = NUMBER.search(name)
        if number is None or without_numbers(name) not in keys:
            continue
        kv_heads = rules[int(number[1])].kv_heads
        if kv_heads % parts and plan.ways.get(name.rpartition(".")[0]) is not Way.JOINED:
            cuts[name] = replace(cut, parts=kv_heads)
    return plan._replace(cuts=cuts)


def _ends(causal: PreTrainedModel, vocab_size: int) -> Iterator[tuple[str, Way]]:
    """Yields the embedding of tokens and the head, which are divided as those of Turnout's own decoder."""
    embedding, head = causal.get_input_embeddings(), causal.get_output_embeddings()  # type: ignore[no-untyped-call]
    for name, module in causal.named_modules():
        if module is embedding and isinstance(module, nn.Embedding) and len(module.weight) == vocab_size:
            yield name, Way.TOKENS
        elif module is head and isinstance(module, nn.Linear) and len(module.weight) == vocab_size:
            yield name, Way.HEAD


def _note_module(
    name: str, module: nn.Module, style: str, cuts: dict[str, Cut], ways: dict[str, Way]
) -> None:
    if style in WAYS:
        ways[name] = WAYS[style]
    if style in OUTPUTS or style in INPUTS:
        for own, parameter in module.named_parameters(recurse=False):
            if own != "bias" or style in OUTPUTS:  # ranks add up outputs, and one of them the bias
                cuts[f"{name}.{own}"] = _cut(style, parameter.dim())


def _cut(style: str, dims: int) -> Cut:
    dim = max(dims - 2, 0) if style in OUTPUTS else dims - 1
    return Cut(dim, 2 if style.startswith("packed") else 1)


class StageNames(NamedTuple):
    """The submodules that the stages of a pipeline have."""

    parts: PipelineParts
    before: Sequence[str]
    """What the first stage alone has."""
    after: Sequence[str]
    """What the last stage alone has, the head excepted."""


def stage_names(causal: PreTrainedModel, layers: int) -> StageNames | None:
    """Returns what transformers' plan of a pipeline says; None: it has none for the layers.

    layers: how many there are.
    """
    plan: Mapping[str, object] = getattr(causal, "pp_plan", None) or {}
    modules = dict(causal.named_modules())
    head = causal.get_output_embeddings()  # type: ignore[no-untyped-call]
    of_head = [name for name, module in modules.items() if module is head]
    names = [name for name in plan if name in modules and name not in of_head]
    lists = [
        name for name in names if isinstance(each := modules[name], nn.ModuleList) and len(each) == layers
    ]
    if len(lists) != 1 or len(of_head) != 1:
        return None
    at = names.index(lists[0])
    prefix = f"{causal.base_model_prefix}."
    return StageNames(
        PipelineParts(lists[0], of_head[0]),
        [name for name in names[:at] if name.startswith(prefix)],
        [name for name in names[at + 1 :] if name.startswith(prefix)],
    )
