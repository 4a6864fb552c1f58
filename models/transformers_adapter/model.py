"""A causal language model of transformers as a module that computes a flat ragged batch."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from inspect import signature

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from turnout.core.interfaces.attention import Attend
from turnout.core.interfaces.models import ModelCapabilities
from turnout.models.decoder.layers import GatedMLP, RMSNorm
from turnout.models.meta_model import linear_layers
from turnout.models.transformers_adapter.attention import attending
from turnout.models.transformers_adapter.ranks.stages import keep_stage
from turnout.models.transformers_adapter.rows import flatten_inputs, flatten_shared

__all__ = ["AdaptedModel", "kept_wide"]

OURS = (GatedMLP, RMSNorm)
"""The shared layers that modules were exchanged for."""


class AdaptedModel(nn.Module):
    """Runs the decoder of a causal model, and its head by itself. Submodules have transformers' names."""

    def __init__(
        self,
        causal: PreTrainedModel,
        shared: Sequence[int | None],
        siblings: Sequence[tuple[str, ...]] = (),
    ) -> None:
        """shared: for each layer the layer whose keys and values it reads, if they are not its own.

        siblings: as `ModelCapabilities` have them.
        """
        super().__init__()
        # One dictionary: a submodule that is exchanged here is exchanged in the causal model, too.
        self._modules = causal._modules
        self.capabilities = ModelCapabilities(
            float32=_named(causal, causal._keep_in_fp32_modules_strict),
            float32_in_float16=_named(causal, causal._keep_in_fp32_modules),
            siblings=tuple(siblings),
        )
        self._causal = [causal]  # in a list, so that it is no submodule
        self._shared = tuple(shared)
        self._first = 0
        """The number of the first layer that is here."""
        self._note_layers()
        self._head: nn.Module | None = None
        takes = signature(type(self._decoder).forward).parameters
        self._takes_cache_position = "cache_position" in takes  # transformers before 5.3

    def _note_layers(self) -> None:
        """Notes where linear layers, embeddings and layers of ours are, before others take their places."""
        self._shared_layers = [name for name, layer in self.named_modules() if isinstance(layer, OURS)]
        inside = tuple(f"{name}." for name in self._shared_layers)
        self._linears = [name for name in linear_layers(self) if not name.startswith(inside)]
        self._embeddings = [name for name, layer in self.named_modules() if isinstance(layer, nn.Embedding)]

    @property
    def causal(self) -> PreTrainedModel:
        """The model of transformers, with the same submodules."""
        return self._causal[0]

    def keep_stage(self, layers: range, *, first: bool, last: bool) -> None:
        """Leaves one stage's part of a pipeline; calls of `attend` then number its layers from 0 on.

        Called before there are weights. Tied embeddings stay at both ends.
        """
        keep_stage(self.causal, layers, len(self._shared), first=first, last=last)
        names = dict(self.named_modules())
        here = tuple(group for group in self.capabilities.siblings if set(group) <= names.keys())
        self.capabilities = replace(self.capabilities, siblings=here)
        self._first = layers.start
        self._note_layers()

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, hidden: Tensor | None = None
    ) -> Tensor:
        """Returns hidden states after the final norm, [tokens, hidden_size]; of a stage that is not the last,
        those after its layers.

        tokens, positions: int64 [tokens]; hidden: what the stage before returned, in place of embeddings.
        """
        if self._head is None:
            self._head = self._settled(self._dtype(tokens) if hidden is None else hidden.dtype)
        given = {"input_ids": tokens[None]} if hidden is None else {"inputs_embeds": hidden[None]}
        more = {"cache_position": positions} if self._takes_cache_position else {}
        with attending(_Step(attend, self._shared, self._first)):
            out = self._decoder(
                position_ids=positions[None], use_cache=False, return_dict=True, **given, **more
            )
        computed: Tensor = out.last_hidden_state[0]
        return computed

    def drop_language_head(self) -> None:
        """Called before there are weights; `logits` is not called after that."""
        head = self._causal[0].get_output_embeddings()  # type: ignore[no-untyped-call]
        name = next(name for name, module in self.named_modules() if module is head)
        self._linears = [each for each in self._linears if each != name]
        owner, _, attribute = name.rpartition(".")
        delattr(self.get_submodule(owner), attribute)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits [rows, vocab_size]. hidden: [rows, hidden_size]."""
        if self._head is None:
            self._head = self._settled(hidden.dtype)
        out: Tensor = self._head(inputs_embeds=hidden[None], use_cache=False, return_dict=True).logits[0]
        return out

    def _dtype(self, tokens: Tensor) -> torch.dtype:
        """Returns the dtype of activations. Where all weights are packed, the embeddings tell it."""
        some = next(self.parameters(), None)
        if some is not None:
            return some.dtype
        found: Tensor = self.get_submodule(self._embeddings[0])(tokens[:1])
        return found.dtype

    def _settled(self, dtype: torch.dtype) -> nn.Module:
        """Called in the first step, when all layers are where they stay; returns what computes logits."""
        flatten_inputs(self, self._linears, self._embeddings, dtype)
        flatten_shared(self, self._shared_layers)
        return _head_of(self._causal[0])

    @property
    def _decoder(self) -> nn.Module:
        return self.get_submodule(self._causal[0].base_model_prefix)


class _Step:
    """Attends with an `Attend`. Implements LayerCalls."""

    def __init__(self, attend: Attend, shared: Sequence[int | None], first: int) -> None:
        self._attend: Callable[..., Tensor] = attend
        self._shared, self._first = shared, first

    def attend_layer(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor | None,
        options: dict[str, object],
    ) -> Tensor:
        layer: int = module.layer_idx  # type: ignore[assignment]  # the dry run saw that each layer has one
        own = self._shared[layer] is None
        k = _by_token(key) if own else None
        v = _by_token(value) if own else None
        more = () if sinks is None else (sinks.float(),)
        out = self._attend(layer - self._first, _by_token(query), k, v, *more)
        return out[None].contiguous()  # as transformers' own functions return it: some layers take a view


def kept_wide(causal: PreTrainedModel) -> tuple[str, ...]:
    """Returns the names of parameters that stay in float32 where the model computes in another dtype."""
    patterns = [*(causal._keep_in_fp32_modules_strict or ()), *(causal._keep_in_fp32_modules or ())]
    return _named(causal, patterns)


def _named(causal: PreTrainedModel, patterns: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the names of parameters in which one of transformers' patterns is found."""
    found = [re.compile(pattern.replace("*", ".*")) for pattern in patterns or ()]
    names = [name for name, _ in causal.named_parameters(remove_duplicate=False)]
    return tuple(name for name in names if any(pattern.search(name) for pattern in found))


def _by_token(heads: Tensor) -> Tensor:
    """Returns [tokens, heads, dim] of [1, heads, tokens, dim], with a token's numbers side by side."""
    return heads[0].transpose(0, 1).contiguous()


def _head_of(causal: PreTrainedModel) -> nn.Module:
    """Returns the causal model with a decoder that hands its embeddings through: the head is what is left.

    So a head's scale and soft cap, which each model applies in its own way, are applied.
    """
    head = copy.copy(causal)
    head._modules = {**causal._modules, causal.base_model_prefix: _GivenHidden()}
    return head


class _GivenHidden(nn.Module):
    """Stands in for a decoder whose hidden states are computed already."""

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> BaseModelOutputWithPast:
        return _Output(last_hidden_state=inputs_embeds)

    @property
    def decoder(self) -> _GivenHidden:
        """What OPT calls; its causal model knows what is inside its decoder."""
        return self


class _Output(BaseModelOutputWithPast):
    """A decoder's output that answers None to what was not computed, such as a router's logits."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
        return None
