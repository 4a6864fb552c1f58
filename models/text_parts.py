"""Text models of checkpoints that read images or sound: which are served, and how tensors are named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SERVED", "text_name", "with_shared"]

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
    """Returns the config of a text model, with what holds for it in the config `around` it.

    Keys without a value are left out.
    """
    own = {key: value for key, value in text.items() if value is not None}
    return {**own, **{key: around[key] for key in SHARED if around.get(key) is not None}}
