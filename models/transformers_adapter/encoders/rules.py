"""Reads how an encoder's layers attend off a dry run, and refuses what our attention does not compute."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from turnout.core.errors import ModelError, describe_error
from turnout.core.types.layer_attention import LayerAttention
from turnout.models.transformers_adapter.attention import attending
from turnout.models.transformers_adapter.building import build_shape, refused
from turnout.models.transformers_adapter.masks import two_sided_window_of
from turnout.models.transformers_adapter.rotation import fix_rotations
from turnout.models.transformers_adapter.rules import DRY_RUN, TOKENS, ShownMask, meta_without_autocast

__all__ = ["read_encoder_rules"]


def read_encoder_rules(
    config: PreTrainedConfig, made: type[PreTrainedModel], positions: int
) -> tuple[LayerAttention, ...]:
    """Returns the rule of each call of attention, in their order, within so many positions.

    Encoders need not say which layer calls: ALBERT's are one. Raises ModelError, naming the fault.
    """
    model = build_shape(config, DRY_RUN, made)
    fix_rotations(model)
    seen = _DryRun(positions)
    tokens = torch.zeros(1, TOKENS, dtype=torch.int64, device="meta")
    with attending(seen), torch.no_grad(), meta_without_autocast():
        try:
            # A mask of ones: without one, transformers looks for several sequences in a batch, at its values.
            model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
        except ModelError:
            raise
        except Exception as error:  # models raise what they like
            if not seen.rules:  # it read our mask by itself
                raise _own_code(made, 0, config.num_hidden_layers) from error
            raise ModelError(
                f"the adapter of transformers cannot run {made.__name__} without its weights: "
                f"{describe_error(error)}"
            ) from error
    if len(seen.rules) < config.num_hidden_layers:
        raise _own_code(made, len(seen.rules), config.num_hidden_layers)
    return tuple(seen.rules)


def _own_code(made: type[PreTrainedModel], known: int, layers: int) -> ModelError:
    return ModelError(
        f"{made.__name__}: {known} of {layers} layers use the attention interface of transformers; the "
        "others have attention code of their own, and such models are not served"
    )


class _DryRun:
    """Notes what each call asks for. Implements LayerCalls."""

    def __init__(self, positions: int) -> None:
        self._positions = positions
        self.rules: list[LayerAttention] = []

    def attend_layer(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor | None,
        options: dict[str, object],
    ) -> Tensor:
        name, layer = type(module).__name__, len(self.rules)
        if query.shape[1] % key.shape[1]:
            raise ModelError(
                f"config.json: {name} has {query.shape[1]} heads of queries in layer {layer}, expected "
                f"a multiple of its {key.shape[1]} heads of keys"
            )
        scale, softcap = options.get("scaling"), options.get("softcap")
        usual = query.shape[3] ** -0.5
        self.rules.append(
            LayerAttention(
                heads=query.shape[1],
                kv_heads=key.shape[1],
                key_dim=query.shape[3],
                value_dim=value.shape[3],
                scale=float(scale) if isinstance(scale, int | float) and scale != usual else None,
                window=self._window(name, layer, options.get("attention_mask")),
                softcap=float(softcap) if isinstance(softcap, int | float) else None,
                sinks=sinks is not None,
                causal=False,
            )
        )
        return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])

    def _window(self, name: str, layer: int, mask: object) -> int | None:
        """Returns how many positions to either side the layer's mask shows; None: all."""
        if mask is None:
            return None
        if not isinstance(mask, ShownMask):
            raise ModelError(
                f"{name} changes its attention mask in layer {layer}, as biases by position do; only whole "
                "texts and sliding windows are served"
            )
        try:
            return two_sided_window_of(mask.function, self._positions)
        except ValueError as error:
            raise refused(f"{name}, layer {layer}: {error}") from error
