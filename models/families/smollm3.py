"""SmolLM3."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, extended, read_spec
from turnout.models.families.windows import FULL, SLIDING, layer_kinds, with_windows

if TYPE_CHECKING:
    from torch import nn

__all__ = ["SmolLM3", "SmolLM3Spec"]


@dataclass(frozen=True, kw_only=True)
class SmolLM3Spec(ModelSpec):
    """Which layers rotate queries and keys: 1, and 0 for those that know no positions."""

    rotates: tuple[int, ...]


class SmolLM3(DecoderFamily):
    """Llama's decoder, some of whose layers do not rotate queries and keys."""

    architectures: ClassVar[tuple[str, ...]] = ("SmolLM3ForCausalLM",)

    def spec(self, config: Mapping[str, Any]) -> SmolLM3Spec:
        reader = ConfigReader({"rope_theta": 2_000_000.0, "tie_word_embeddings": True, **config})
        bias = reader.flag("attention_bias", False)
        biases = Biases(qkv=bias, output=bias, mlp=reader.flag("mlp_bias", False))
        plain = read_spec(self.architectures[0], reader.config, biases)
        interval = reader.integer("no_rope_layer_interval", 4)
        every = tuple(int((layer + 1) % interval != 0) for layer in range(plain.layers))
        rotates = reader.each_of("no_rope_layers", (0, 1), plain.layers) or every
        slides = reader.flag("use_sliding_window", False) and reader.has("sliding_window")
        kinds = layer_kinds(reader, [SLIDING if slides and not each else FULL for each in rotates])
        if SLIDING in kinds:  # which `layer_types` may say where `use_sliding_window` does not
            plain = with_windows(plain, kinds, reader.integer("sliding_window"))
        return extended(plain, SmolLM3Spec, rotates=rotates)

    def build(self, spec: ModelSpec) -> nn.Module:
        from turnout.models.decoder.decoder import Decoder
        from turnout.models.decoder.rope import RotaryByLayer, make_rotary, no_rotary

        assert isinstance(spec, SmolLM3Spec)
        rotaries = no_rotary(spec.head_dim), make_rotary(spec.rope, spec.head_dim)
        return Decoder(spec, rotary=RotaryByLayer(rotaries, spec.rotates))
