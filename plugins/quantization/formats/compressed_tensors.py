"""Reads the layout of compressed-tensors, as llm-compressor and ``turnout quantize`` write it.

::

    int-quantized    weight             int8 [out, in]
                     weight_scale       float [out, 1]
    pack-quantized   weight_packed      int32 [out, ⌈in · bits / 32⌉]   codes plus 2^(bits-1)
                     weight_scale       float [out, groups]
                     weight_zero_point  int32 [⌈out · bits / 32⌉, groups], the same way; absent if symmetric;
                                        int8 [1], as it is, where all weights have one
                     weight_shape       int64 [2]
    float-quantized  weight             float8_e4m3fn [out, in]
                     weight_scale       float [out, 1], [1] or one for each block

weight = (code - zero) · scale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Adopter
from turnout.plugins.quantization.formats.fp8_blocks import block_layer, read_block
from turnout.plugins.quantization.formats.fp8_weights import KV_SCALES, channel_layer
from turnout.plugins.quantization.formats.grouped_codes import GroupedCodes
from turnout.plugins.quantization.formats.layer_tensors import LayerTensors
from turnout.plugins.quantization.formats.packing import unpack
from turnout.plugins.quantization.formats.settings import Settings
from turnout.plugins.quantization.layers.factory import layer_factory

__all__ = ["CompressedTensorsAdopter"]

TEXT_MODEL = "language_model"
"""What the text model of one of images or sound is called, in front of ``model`` or behind it."""
MERGED = ("weight_input", "weight_output")
"""Places of transforms that are in the weights already; others are computed while serving."""


class CompressedTensorsAdopter(Adopter):
    """Builds each layer as the group that names it most specifically says."""

    divides = True
    kv_scales = (*KV_SCALES, "k_zero_point", "v_zero_point", "k_proj.output_scale", "v_proj.output_scale")

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = Settings(config)
        sparsity = config.get("sparsity_config")
        if sparsity and not (isinstance(sparsity, Mapping) and sparsity.get("format") == "dense"):
            raise settings.wrong("sparsity_config", "sparse weights are not supported")
        _check_transforms(settings)
        # Checked and not needed: a layer's tensors tell whether it is quantized.
        _Targets.read(settings, "ignore")
        groups = config.get("config_groups")
        if not isinstance(groups, Mapping) or not groups:
            raise settings.wrong("config_groups", "an object with a group or more is expected")
        self._groups = [_Group.read(name, group) for name, group in groups.items()]

    def adopt(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear, context: ComputeContext
    ) -> nn.Module:
        ranks = [(rank, group) for group in self._groups if (rank := group.targets.rank(name)) is not None]
        _, group = min(ranks, key=itemgetter(0), default=(None, None))
        if group is None:
            raise ModelError(
                f"{name} is stored quantized, but no group of quantization_config: config_groups names it"
            )
        parts = LayerTensors(name, tensors, like)
        # Activations are quantized token by token or not at all, which is more exact than a fixed scale.
        parts.ignore("input_scale", "input_zero_point")
        return group.layer(parts, context)


def _check_transforms(settings: Settings) -> None:
    """Raises ModelError for transforms of activations: without them, the weights mean something else."""
    where = f"{settings.where}: transform_config: config_groups"
    transforms = settings.config.get("transform_config") or {}
    try:
        applied = [
            Settings(each, f"{where}: {name}: apply")
            for name, scheme in transforms.get("config_groups", {}).items()
            for each in scheme.get("apply", ())
        ]
        for each in applied:
            each.one_of("location", MERGED)
    except (AttributeError, TypeError):
        raise settings.wrong("transform_config", "config_groups of objects with apply are expected") from None


@dataclass(frozen=True)
class _Targets:
    """Names, classes and regular expressions of layers."""

    names: frozenset[str]
    """Classes among them."""
    patterns: tuple[re.Pattern[str], ...]
    """Of those that begin with ``re:``; they match the start of a name."""

    @classmethod
    def read(cls, settings: Settings, key: str) -> _Targets:
        given = settings.config.get(key) or []
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            raise settings.wrong(key, "a list of names is expected")
        marked = [each for each in given if each.startswith("re:")]
        try:
            patterns = tuple(re.compile(each.removeprefix("re:")) for each in marked)
        except re.error as error:
            raise settings.wrong(key, f"{error.pattern!r} is no regular expression: {error}") from None
        return cls(frozenset(given).difference(marked), patterns)

    def rank(self, layer: str) -> int | None:
        """How specifically a linear layer is named: 0 by its name, 1 by an expression, 2 by its class."""
        # Where the text model alone is served, groups have the whole model's names.
        whole = f"{TEXT_MODEL}.{layer}", layer.replace("model.", f"model.{TEXT_MODEL}.", 1)
        names = (layer, *whole)
        if not self.names.isdisjoint(names):
            return 0
        if any(pattern.match(name) for pattern in self.patterns for name in names):
            return 1
        return 2 if "Linear" in self.names else None


@dataclass(frozen=True)
class _Group:
    targets: _Targets
    floats: bool
    bits: int
    strategy: str
    group_size: int | None
    symmetric: bool
    block: tuple[int, int] | None
    activations: bool
    """Whether activations are quantized, too."""

    @classmethod
    def read(cls, name: str, group: Any) -> _Group:
        where = f"quantization_config: config_groups: {name}"
        if not isinstance(group, Mapping) or not isinstance(group.get("weights"), Mapping):
            raise ModelError(f"config.json: {where} names no scheme for weights")
        outer, weights = Settings(group, where), Settings(group["weights"], f"{where}: weights")
        kind = weights.one_of("type", ("int", "float"), default="int")
        bits = weights.one_of("num_bits", (4, 8) if kind == "int" else (8,))
        strategies = ("tensor", "channel", "group") if kind == "int" else ("tensor", "channel", "block")
        strategy = weights.one_of("strategy", strategies, default="tensor")
        activations = group.get("input_activations")
        if not isinstance(activations, (Mapping, NoneType)):
            raise outer.wrong("input_activations", "an object or null is expected")
        if activations is not None and kind == "int":
            Settings(activations, f"{where}: input_activations").one_of("num_bits", (8,))
            if bits != 8 or strategy == "group":
                raise outer.wrong("input_activations", "only with weights of 8 bits without groups")
        return cls(
            targets=_Targets.read(outer, "targets"),
            floats=kind == "float",
            bits=bits,
            strategy=strategy,
            group_size=weights.integer("group_size") if strategy == "group" else None,
            symmetric=bool(group["weights"].get("symmetric", True)),
            block=read_block(weights, "block_structure"),
            activations=activations is not None,
        )

    def layer(self, parts: LayerTensors, context: ComputeContext) -> nn.Module:
        if self.floats:
            if self.strategy == "block":
                return block_layer(parts, self.block or (128, 128), "weight_scale", context)
            return channel_layer(parts, "weight_scale", context, activations=self.activations)
        if self.activations and not self.symmetric:
            raise ModelError(
                f"{parts.layer} has zero points for weights and 8-bit activations, which is not supported"
            )
        if parts.has("weight_packed") or parts.has("weight_shape"):
            return self._packed(parts, context)
        return self._plain(parts, context)

    def _plain(self, parts: LayerTensors, context: ComputeContext) -> nn.Module:
        """A layer whose codes are stored as int8."""
        codes = parts.take("weight", [torch.int8], [parts.outputs, parts.inputs])
        scale = self._scale(parts)
        zero = torch.zeros_like(scale) if self.symmetric else self._signed_zero(parts, scale)
        bias = parts.bias()
        parts.finish()
        if self.activations:
            return layer_factory(context).int8(codes, scale[:, 0].contiguous(), bias)
        offset = 2 ** (self.bits - 1)
        raised = (codes.to(torch.int16) + offset).to(torch.uint8)
        return GroupedCodes(raised, scale, zero + offset).layer(parts.layer, self.bits, bias, context)

    def _packed(self, parts: LayerTensors, context: ComputeContext) -> nn.Module:
        """A layer whose codes are stored in 32-bit words."""
        words = 32 // self.bits
        stored = parts.take("weight_packed", [torch.int32], [parts.outputs, -(-parts.inputs // words)])
        codes = unpack(stored, self.bits)[:, : parts.inputs]
        scale = self._scale(parts)
        offset = 2 ** (self.bits - 1)
        if self.symmetric:
            zero = torch.full_like(scale, offset)
        elif self.strategy == "tensor":
            zero = self._signed_zero(parts, scale) + offset
        else:
            zero = self._zero(parts, words, scale.shape[1])
        order, bias = self._order(parts), parts.bias()
        parts.ignore("weight_shape")
        parts.finish()
        if self.activations:
            signed = (codes.to(torch.int16) - 128).to(torch.int8)
            return layer_factory(context).int8(signed, scale[:, 0].contiguous(), bias)
        if order is not None:
            codes = codes[:, order]
        return GroupedCodes(codes, scale, zero, order).layer(parts.layer, self.bits, bias, context)

    def _scale(self, parts: LayerTensors) -> Tensor:
        """float32 [out, groups]."""
        if self.strategy == "group":
            assert self.group_size is not None
            return parts.scale("weight_scale", [parts.outputs, parts.groups(self.group_size)])
        scale = parts.scale("weight_scale", [parts.outputs, 1], [parts.outputs], [1], [])
        return scale.view(-1, 1).expand(parts.outputs, 1).contiguous()

    def _signed_zero(self, parts: LayerTensors, scale: Tensor) -> Tensor:
        """float32, as `scale`."""
        shape = [1] if self.strategy == "tensor" else scale.shape
        return parts.take("weight_zero_point", [torch.int8], shape).float().expand(scale.shape).contiguous()

    def _zero(self, parts: LayerTensors, words: int, groups: int) -> Tensor:
        packed = parts.take("weight_zero_point", [torch.int32], [-(-parts.outputs // words), groups])
        return unpack(packed.t(), self.bits)[:, : parts.outputs].t().float()

    def _order(self, parts: LayerTensors) -> Tensor | None:
        """The order of inputs that sorts them by group; None if they are sorted."""
        if not parts.has("weight_g_idx"):
            return None
        index = parts.take("weight_g_idx", [torch.int32, torch.int64], [parts.inputs]).long()
        return None if bool((index[1:] >= index[:-1]).all()) else index.argsort(stable=True)
