"""Text models of checkpoints that read images or sound: which are served, and how tensors are named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SERVED", "has_other_text", "text_name", "with_shared"]

SERVED = frozenset(
    [
        "AriaForConditionalGeneration",
        "DeepseekVLForConditionalGeneration",
        "DeepseekVLHybridForConditionalGeneration",
        "Exaone4_5_ForConditionalGeneration",
        "FastVlmForConditionalGeneration",
        "Gemma3nForConditionalGeneration",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "GlmAsrForConditionalGeneration",
        "GotOcr2ForConditionalGeneration",
        "GraniteSpeechForConditionalGeneration",
        "GraniteSpeechPlusForConditionalGeneration",
        "HyperCLOVAXVisionV2ForConditionalGeneration",
        "Idefics2ForConditionalGeneration",
        "InternVLForConditionalGeneration",
        "JanusForConditionalGeneration",
        "LightOnOcrForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "LlavaNextForConditionalGeneration",
        "LlavaNextVideoForConditionalGeneration",
        "LlavaOnevisionForConditionalGeneration",
        "MossTranscribeDiarizeForConditionalGeneration",
        "OmniASRForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen3ASRForConditionalGeneration",
        "SmolVLMForConditionalGeneration",
        "VibeVoiceAsrForConditionalGeneration",
        "VideoLlama3ForConditionalGeneration",
        "VideoLlavaForConditionalGeneration",
        "VipLlavaForConditionalGeneration",
        "VoxtralForConditionalGeneration",
    ]
)
"""As ``scripts/transformers_grid.py`` found; those that a family claims are left out."""

CLAIMED = {"Mistral3ForConditionalGeneration": "mistral"}
"""Architectures around text models of several types, of which a family computes this one."""

SHARED = ("dtype", "torch_dtype", "tie_word_embeddings", "eos_token_id")
"""Keys beside the config of a text model that hold for it, whatever that says itself."""
LEADS = {
    "model.language_model.model.": "model.",
    "model.language_model.": "model.",
    "language_model.": "",
    "model.text_model.": "model.",
}
"""How names of the text model's tensors begin, and what stands there in a checkpoint of text alone."""


def text_name(key: str) -> str | None:
    """Returns the name that a tensor has in a checkpoint of text alone; None: its own name does not say that
    it is the text model's."""
    lead = next((lead for lead in LEADS if key.startswith(lead)), None)
    return None if lead is None else f"{LEADS[lead]}{key.removeprefix(lead)}"


def with_shared(text: Mapping[str, Any], around: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config of a text model, with what holds for it in the config `around` it."""
    return {**text, **{key: around[key] for key in SHARED if around.get(key) is not None}}


def has_other_text(config: Mapping[str, Any]) -> bool:
    """Says whether the text model is of another type than the family of its architecture computes."""
    claimed, text = CLAIMED.get(config["architectures"][0]), config.get("text_config")
    kind = text.get("model_type") if isinstance(text, Mapping) else None
    return claimed is not None and kind not in (None, claimed)
