"""Compares the predictions of a checkpoint, quantized in some way, with a reference's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import choose_kernels
from turnout.lab.quality.deviation import Deviation, Quality
from turnout.lab.quality.perplexity import Predict, measure_deviation, measure_quality, of_module
from turnout.plugins.defaults import UNQUANTIZED
from turnout.runner.checkpoint import Checkpoint, open_checkpoint
from turnout.runner.memory.device import choose_device, choose_dtype
from turnout.runner.weights import load_weights, quantization_of
from turnout.text.tokenizer import load_tokenizer
from turnout.text.vocabulary import vocabulary_difference

__all__ = ["ModelComparison"]


@dataclass
class ModelComparison:
    """A checkpoint, quantized in one way or another, beside a reference as it is."""

    registry: Registry
    checkpoint: Checkpoint
    reference: Checkpoint
    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(
        cls, registry: Registry, model: str, reference: str | None, dtype: str, device: str
    ) -> ModelComparison:
        """Raises ModelError or ConfigError, as `turnout serve` would."""
        checkpoint = open_checkpoint(registry, model)
        other = open_checkpoint(registry, reference) if reference is not None else checkpoint
        difference = vocabulary_difference(checkpoint.folder, other.folder)
        if difference is not None:
            raise ConfigError(f"{reference} does not have the vocabulary of {model}: {difference}")
        place = choose_device(device)
        return cls(registry, checkpoint, other, place, choose_dtype(dtype, checkpoint.spec.dtype, place))

    @property
    def differs(self) -> bool:
        return self.reference is not self.checkpoint

    @property
    def reference_name(self) -> str:
        return quantization_of(self.reference, UNQUANTIZED)

    def name(self, quantization: str) -> str:
        """The format that the checkpoint's weights then have."""
        return quantization_of(self.checkpoint, quantization)

    def read(self, text: str, most: int) -> list[int]:
        """Its first tokens."""
        return load_tokenizer(self.checkpoint.folder).encode(text)[:most]

    def base(self, tokens: list[int], window: int) -> Quality:
        """Of the reference."""
        return measure_quality(
            self._reference, tokens, window=self._window(window), label=self.reference_name
        )

    def deviation(self, quantization: str, tokens: list[int], window: int) -> Deviation:
        """Of the checkpoint, quantized so, from the reference."""
        model = self._load(self.checkpoint, quantization)
        return measure_deviation(
            of_module(model, self.device, self.checkpoint.spec.layer_attention()),
            self._reference,
            tokens,
            window=self._window(window),
            label=self.name(quantization),
        )

    @cached_property
    def _reference(self) -> Predict:
        model = self._load(self.reference, UNQUANTIZED)
        return of_module(model, self.device, self.reference.spec.layer_attention())

    def _load(self, checkpoint: Checkpoint, quantization: str) -> nn.Module:
        """As it would be served."""
        kernels = choose_kernels("auto", self.device, self.dtype).kernels
        context = ComputeContext(self.device, self.dtype, kernels)
        return load_weights(self.registry, checkpoint, quantization, context)

    def _window(self, wanted: int) -> int:
        most = min(self.checkpoint.spec.max_positions, self.reference.spec.max_positions)
        if not 2 <= wanted <= most:
            raise ConfigError(f"window={wanted} should be 2 to {most:,}, the positions that the model has")
        return wanted
