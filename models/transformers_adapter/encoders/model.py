"""An encoder of transformers as a module that computes a flat ragged batch."""

from __future__ import annotations

import copy
from inspect import signature

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from turnout.core.interfaces.attention import Attend
from turnout.core.interfaces.models import ModelCapabilities
from turnout.kernels.layers import attends_whole_texts
from turnout.kernels.threads import take_over_threads
from turnout.models.decoder.layers import RMSNorm
from turnout.models.transformers_adapter.attention import attending
from turnout.models.transformers_adapter.rows import flatten_inputs

__all__ = ["AdaptedEncoder", "body_of"]

TYPES, POSITIONS = "token_type_ids", "position_ids"


class AdaptedEncoder(nn.Module):
    """Runs an encoder, and its classification head by itself. Submodules have transformers' names."""

    def __init__(self, model: PreTrainedModel, first_position: int = 0) -> None:
        """model: an encoder, or one with a classification head; first_position: the number of the first."""
        super().__init__()
        # One dictionary: a submodule that is exchanged here is exchanged in the model, too.
        self._modules = model._modules
        self._model = [model]  # in a list, so that it is no submodule
        self.first_position = first_position
        body = body_of(model)
        takes = signature(type(body).forward).parameters
        self._takes_types, self._takes_positions = TYPES in takes, POSITIONS in takes
        types = getattr(model.config, "type_vocab_size", 0) or 0
        self.capabilities = ModelCapabilities(picks_rows=True, token_types=self._takes_types and types > 1)
        self._pooler_reads_rows = isinstance(getattr(body, "pooler", None), nn.Linear)
        self._linears = [name for name, layer in self.named_modules() if isinstance(layer, nn.Linear)]
        self._norms = [name for name, layer in self.named_modules() if type(layer) is RMSNorm]
        self._embeddings = [name for name, layer in self.named_modules() if isinstance(layer, nn.Embedding)]
        self._head: nn.Module | None = None
        self._settled = False

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        attend: Attend,
        rows: Tensor | None = None,
        token_types: Tensor | None = None,
    ) -> Tensor:
        """Returns hidden states [tokens, hidden_size], or those of `rows` alone.

        tokens, positions, token_types: int64 [tokens]; rows: int64 [rows], ascending.
        """
        if not self._settled:
            self.settle(tokens)
        if attends_whole_texts(attend):
            # PyTorch's threads would share out activations, whose last bits depend on where a part ends.
            take_over_threads()
        more = {}
        if self._takes_types:
            more[TYPES] = (torch.zeros_like(tokens) if token_types is None else token_types)[None]
        if self._takes_positions:
            more[POSITIONS] = (positions + self.first_position)[None]
        with attending(_Step(attend)):
            out = body_of(self._model[0])(input_ids=tokens[None], return_dict=True, **more)
        hidden: Tensor = out.last_hidden_state[0]
        return hidden if rows is None else hidden[rows]

    def score(self, pooled: Tensor) -> Tensor:
        """Returns the head's scores, [rows, labels]. pooled: [rows, hidden_size]."""
        assert self._head is not None, "there are hidden states before there are scores"
        scores: Tensor = self._head(inputs_embeds=pooled[:, None], return_dict=True).logits
        return scores

    def settle(self, tokens: Tensor) -> None:
        """Called in the first step, when all layers are where they stay."""
        some = next(self.parameters(), None)
        dtype = self.get_submodule(self._embeddings[0])(tokens[:1]).dtype if some is None else some.dtype
        flatten_inputs(self, [*self._linears, *self._norms], self._embeddings, dtype)
        model, body = self._model[0], body_of(self._model[0])
        if body is not model:
            head = copy.copy(model)
            head._modules = {
                **model._modules,
                model.base_model_prefix: _GivenHidden(body, reads_rows=self._pooler_reads_rows),
            }
            self._head = head
        self._settled = True


def body_of(model: PreTrainedModel) -> nn.Module:
    """Returns the encoder of a model with a head; of one without, the model itself."""
    return getattr(model, model.base_model_prefix, model)


class _Step:
    """Attends with an `Attend`, layer by layer as they call. Implements LayerCalls."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend
        self._layer = 0

    def attend_layer(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor | None,
        options: dict[str, object],
    ) -> Tensor:
        layer, self._layer = self._layer, self._layer + 1
        return self._attend(layer, _by_token(query), _by_token(key), _by_token(value))[None]


def _by_token(heads: Tensor) -> Tensor:
    """Returns [tokens, heads, dim] of [1, heads, tokens, dim], with a token's numbers side by side."""
    return heads[0].transpose(0, 1).contiguous()


class _GivenHidden(nn.Module):
    """Stands in for an encoder whose hidden states are computed already: of each text one."""

    def __init__(self, body: nn.Module, *, reads_rows: bool) -> None:
        """reads_rows: the layer that heads read through takes rows (ALBERT), and does not look for them."""
        super().__init__()
        self.pooler: nn.Module | None = getattr(body, "pooler", None)
        self.activation: nn.Module = getattr(body, "pooler_activation", None) or nn.Identity()
        self._reads_rows = reads_rows

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> BaseModelOutputWithPooling:
        if self.pooler is None:
            return BaseModelOutputWithPooling(last_hidden_state=inputs_embeds)
        read = (
            self.activation(self.pooler(inputs_embeds[:, 0]))
            if self._reads_rows
            else self.pooler(inputs_embeds)
        )
        return BaseModelOutputWithPooling(last_hidden_state=inputs_embeds, pooler_output=read)
