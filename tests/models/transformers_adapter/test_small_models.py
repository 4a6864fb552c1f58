"""The small model by which start-up tries a large one is small in all its parts."""

from __future__ import annotations

from transformers import CONFIG_MAPPING

from turnout.models.transformers_adapter.small import shrunk


def test_parts_for_images_and_sound_have_few_layers() -> None:
    """Those of Phi-4-multimodal have 0.8 billion weights."""
    small = shrunk(CONFIG_MAPPING["phi4_multimodal"](num_hidden_layers=2, vision_config={}, audio_config={}))
    assert small.vision_config.num_hidden_layers == small.audio_config.num_blocks == 2
    assert small.vision_config.image_size == 448, "what is no number of layers stays"
