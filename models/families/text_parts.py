"""The text models of checkpoints that read images too. Their other weights are skipped.

Those are here whose text transformers has no causal model for, and those that many serve: reading a config by
transformers takes seconds (`models.bodies.text_part`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.families.gemma import Gemma3, GemmaSpec
from turnout.models.families.mistral import Mistral
from turnout.models.families.qwen2 import Qwen2
from turnout.models.families.qwen3 import Qwen3
from turnout.models.text_parts import has_other_text, text_name, with_shared

__all__ = ["Gemma3Text", "Mistral3Text", "Qwen2VLText", "Qwen3VLText"]

MROPE = ("type", "mrope_section", "mrope_interleaved")
"""Keys of a rotation by three positions, which of text are one."""
GEMMA = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}
"""What Gemma 3's text configs leave out."""
OTHERS = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.")
"""How names of all other tensors begin."""


class _TextNames(ModelFamily):
    """Gives a family the tensors of the text model, by the names of a checkpoint of text alone."""

    def rename(self, key: str) -> Renamed:
        if key.removeprefix("model.").startswith(OTHERS):
            return None
        return super().rename(text_name(key) or key)


class Gemma3Text(_TextNames, Gemma3):
    """The text model of a Gemma 3 that reads images, whose config leaves out what is usual."""

    architectures: ClassVar[tuple[str, ...]] = ("Gemma3ForConditionalGeneration",)
    checkpoints: ClassVar[tuple[str, ...]] = ("google/gemma-3-4b-it",)

    def spec(self, config: Mapping[str, Any]) -> GemmaSpec:
        return super().spec({**GEMMA, **_text_config(config)})


class Mistral3Text(_TextNames, Mistral):
    """The text model of a Mistral 3 that reads images."""

    architectures: ClassVar[tuple[str, ...]] = ("Mistral3ForConditionalGeneration",)
    checkpoints: ClassVar[tuple[str, ...]] = ("mistralai/Mistral-Small-3.1-24B-Instruct-2503",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        if has_other_text(config):
            reader = ConfigReader(config["text_config"], "config.json: text_config")
            raise reader.reject(
                "model_type",
                "this family computes 'mistral'; leave --model-impl out, and transformers' code runs it",
            )
        return super().spec(_text_config(config))


class Qwen2VLText(_TextNames, Qwen2):
    """The text model of Qwen2-VL and Qwen2.5-VL. Of text, all three rotations are by one position."""

    architectures: ClassVar[tuple[str, ...]] = (
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
    )
    checkpoints: ClassVar[tuple[str, ...]] = ("Qwen/Qwen2-VL-2B-Instruct", "Qwen/Qwen2.5-VL-3B-Instruct")

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        return super().spec(_text_config(config))


class Qwen3VLText(_TextNames, Qwen3):
    """The text model of Qwen3-VL. Of text, all three rotations are by one position."""

    architectures: ClassVar[tuple[str, ...]] = ("Qwen3VLForConditionalGeneration",)
    checkpoints: ClassVar[tuple[str, ...]] = ("Qwen/Qwen3-VL-4B-Instruct",)

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        return super().spec(_text_config(config))


def _text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the text model's own config; in old configs of Qwen2-VL it is not apart from the others."""
    nested = ConfigReader(config).mapping("text_config") or config
    shared = with_shared(nested, config).items()
    # Null is as if a key were not there; of windows it says that there are none.
    found = {key: value for key, value in shared if value is not None or key == "sliding_window"}
    for key in ("rope_scaling", "rope_parameters"):
        rope = found.get(key)
        if isinstance(rope, Mapping) and "mrope_section" in rope:
            kept = {name: value for name, value in rope.items() if name not in MROPE}
            found[key] = {**kept, "rope_type": "default"}
    return found
