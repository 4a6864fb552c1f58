"""Reads each layer's attention off a dry run, and refuses what our attention does not compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig

from turnout.core.errors import ModelError, describe_error
from turnout.core.types.layer_attention import LayerAttention
from turnout.models.transformers_adapter.attention import attending, attention
from turnout.models.transformers_adapter.building import build_shape, model_class, refused
from turnout.models.transformers_adapter.masks import MaskFunction, window_of
from turnout.models.transformers_adapter.rotation import fix_rotations

__all__ = ["DRY_RUN", "TOKENS", "ShownMask", "meta_without_autocast", "read_rules"]

DRY_RUN = "turnout-dry-run"
"""The attention implementation of dry runs, for which models make masks."""
TOKENS = 4
LONGEST = 120
"""Characters of an error of transformers' code, in one line of ours."""
ATTEMPTS = ((torch.bfloat16, "meta"), (torch.float32, "meta"), (torch.bfloat16, "cpu"))
"""The dtype of the model, and where its mask lies. Some operators know their shapes in bfloat16 alone, some
modules compute a part in float32 whatever the rest is, and some look at the values of the mask."""


def read_rules(config: PreTrainedConfig, positions: int) -> tuple[LayerAttention, ...]:
    """Returns the rule of each layer, within so many positions. Raises ModelError, naming the fault."""
    name, seen = _first_seen(config, positions)
    layers = config.get_text_config().num_hidden_layers
    if silent := [layer for layer in range(layers) if layer not in seen]:
        listed = ", ".join(map(str, silent[:3])) + (", …" if len(silent) > 3 else "")
        raise refused(
            f"{name}: layers {listed} of {layers} do not use the attention interface of transformers: they "
            "have a recurrent state, or attention code of their own"
        )
    return tuple(seen[layer] for layer in range(layers))


def _first_seen(config: PreTrainedConfig, positions: int) -> tuple[str, dict[int, LayerAttention]]:
    """Returns as `_seen`, of the first attempt that succeeds. Raises ModelError where none does."""
    failed: Exception | None = None
    for dtype, device in ATTEMPTS:
        try:
            return _seen(config, positions, dtype, device)
        except ModelError:
            raise
        except Exception as error:  # models raise what they like
            failed = failed or error
    assert failed is not None, "there are attempts"
    made = model_class(config)
    raise refused(
        f"the adapter of transformers cannot run {made.__name__ if made else config.model_type} without its "
        f"weights: {shorten(describe_error(failed), LONGEST, placeholder=' …')}"
    ) from failed


def _seen(
    config: PreTrainedConfig, positions: int, dtype: torch.dtype, device: str
) -> tuple[str, dict[int, LayerAttention]]:
    """Returns the name of the class, and the rule of each layer that attended. Raises what the model does.

    device: of the mask that it is given.
    """
    model = build_shape(config, DRY_RUN, dtype=dtype)
    fix_rotations(model)
    seen = _DryRun(positions)
    tokens = torch.zeros(1, TOKENS, dtype=torch.int64, device="meta")
    with attending(seen), torch.no_grad(), meta_without_autocast():
        # A mask of ones: without one, transformers looks for several sequences in a batch, at its values.
        mask = torch.ones_like(tokens, device=device)
        model(input_ids=tokens, attention_mask=mask, use_cache=False)
    return type(model).__name__, seen.rules


@contextmanager
def meta_without_autocast() -> Iterator[None]:
    """Answers transformers before 5.3, which ask PyTorch whether it casts on "meta": it raises an error."""
    asked = torch.is_autocast_enabled

    def is_enabled(*device: str) -> bool:
        return device != ("meta",) and asked(*device)

    torch.is_autocast_enabled = is_enabled  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.is_autocast_enabled = asked


class _DryRun:
    """Notes what each layer asks for. Implements LayerCalls."""

    def __init__(self, positions: int) -> None:
        self._positions = positions
        self._keys: list[tuple[int, Tensor]] = []
        self.rules: dict[int, LayerAttention] = {}

    def attend_layer(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sinks: Tensor | None,
        options: dict[str, object],
    ) -> Tensor:
        layer = getattr(module, "layer_idx", None)
        name = type(module).__name__
        if not isinstance(layer, int):
            raise refused(f"{name} does not say which layer it is (layer_idx), so its keys have no place")
        if layer in self.rules:
            raise refused(f"{name} attends twice in layer {layer}, and one set of keys and values is kept")
        if query.shape[1] % key.shape[1]:
            raise ModelError(
                f"config.json: {name} has {query.shape[1]} heads of queries in layer {layer}, expected "
                f"a multiple of its {key.shape[1]} heads of keys"
            )
        owner = next((other for other, known in self._keys if known is key), None)
        self._keys.append((layer, key))
        self.rules[layer] = LayerAttention(
            heads=query.shape[1],
            kv_heads=key.shape[1],
            key_dim=query.shape[3],
            value_dim=value.shape[3],
            scale=_other_than(_number(options.get("scaling")), query.shape[3] ** -0.5),
            window=self._window(name, layer, options.get("attention_mask")),
            softcap=_number(options.get("softcap")),
            sinks=sinks is not None,
            kv_from=owner,
        )
        return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])

    def _window(self, name: str, layer: int, mask: object) -> int | None:
        """Returns how many positions the layer's mask shows; None: all up to a query's own."""
        if mask is None:
            raise refused(f"{name} attends without a mask in layer {layer}, to later positions too")
        if not isinstance(mask, ShownMask):
            raise refused(f"{name} changes its attention mask in layer {layer}, as ALiBi does")
        try:
            return window_of(mask.function, self._positions)
        except ValueError as error:
            raise refused(f"{name}, layer {layer}: {error}") from error


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _other_than(value: float | None, usual: float) -> float | None:
    return None if value is None or value == usual else value


class ShownMask(Tensor):
    """Stands for the mask that a function describes; what a model computes from it is another tensor."""

    function: MaskFunction
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


def _mask(*_: object, mask_function: MaskFunction, **__: object) -> Tensor:
    """Has the signature of transformers' functions that make masks."""
    mask = torch.empty(1, 1, TOKENS, TOKENS, device="meta").as_subclass(ShownMask)
    mask.function = mask_function
    return mask


AttentionInterface.register(DRY_RUN, attention)
AttentionMaskInterface.register(DRY_RUN, _mask)
