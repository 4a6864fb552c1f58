"""Small models of transformers that read images or sound beside text, and what they compute of text alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

from turnout.models.text_parts import text_name
from turnout.models.transformers_adapter.building import build_empty, build_filled, with_padding
from turnout.models.transformers_adapter.check import MOST
from turnout.models.transformers_adapter.exchange.proof import largest_difference
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import spread_weights

__all__ = ["small_model", "text_names", "tried_text"]

LISTS = ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES")
REFUSED = {
    "PaliGemmaForConditionalGeneration": "its tokens of a prompt see later ones",
    **{
        name: "transformers writes the text model's tensors by other names than it has them"
        for name in (
            "FuyuForCausalLM",
            "Kimi_K25ForConditionalGeneration",
            "MiniMaxM3SparseForConditionalGeneration",
            "QianfanOCRForConditionalGeneration",
        )
    },
}
"""What does not show in a text's logits."""
UNTIED = {"tie_word_embeddings": False}
"""A tied head of random weights mostly repeats the last token."""
ALSO_TEXT = ("embed_vision", "embed_audio")
"""Parts that Gemma 3n sends all tokens through, before it puts text in their place."""


def text_names() -> Iterator[tuple[str, str]]:
    """Yields the types of models that have the config of a causal text model, and their architectures."""
    names = {kind: name for each in LISTS for kind, name in getattr(modeling_auto, each, {}).items()}
    for kind, name in sorted(names.items()):
        config = CONFIG_MAPPING[kind]()
        text = config.get_text_config()
        apart = text is not config and not config.is_encoder_decoder
        if apart and isinstance(CAUSAL.get(text.model_type), str):
            yield kind, name


def tried_text(kind: str, architecture: str) -> dict[str, Any]:
    """Returns the text model and how far its logits are, or why they are not compared."""
    if why := REFUSED.get(architecture):
        return {"refused": why}
    tokens = torch.randint(3, 290, (1, 24), generator=torch.Generator().manual_seed(0))
    try:
        text, whole = small_model(kind, architecture)
        with torch.no_grad():
            expected = whole(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits
            difference = largest_difference(text(tokens, use_cache=False).logits, expected)
    except Exception as error:  # its default config has no small form, or it wants more than text
        return {"untried": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
    name = type(text).__name__
    if difference > MOST:
        return {"refused": f"its logits differ from those of {name} by {difference:.1e} of the largest"}
    return {"kind": kind, "text": name, "difference": f"{difference:.0e}"}


def small_model(kind: str, architecture: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    """Returns a small text model, and a model around it that has its weights. All others are on "meta"."""
    config = CONFIG_MAPPING[kind]()
    small = shrunk(config.get_text_config(), tie_word_embeddings=False)
    torch.manual_seed(0)
    text = build_filled(small, "eager")
    spread_weights(text)
    with _libraries_may_lack():
        whole = build_empty(_around(config, small), "eager", getattr(transformers, architecture))
    own = text.state_dict()
    names = {name: text_name(name) or name for name in whole.state_dict()}
    filled = {name: own[inner] for name, inner in names.items() if inner in own}
    if lost := own.keys() - set(names.values()):
        raise ValueError(f"{architecture} has no {min(lost)}")
    for name, value in whole.named_parameters():
        if any(part in name for part in ALSO_TEXT):
            filled[name] = torch.randn(value.shape) * 0.1
    whole.load_state_dict(filled, strict=False, assign=True)
    whole.tie_weights()
    return text, whole


def _around(config: PreTrainedConfig, text: PreTrainedConfig) -> PreTrainedConfig:
    """Returns the config with another one of its text model, and marks of images that no text has."""
    values = config.to_dict()
    key = next(
        key
        for key, value in values.items()
        if isinstance(value, dict) and value.get("model_type") == text.model_type
    )
    marks = {key: text.vocab_size for key in values if key.endswith(("_token_id", "_token_index"))}
    marks = {mark: value for mark, value in marks.items() if mark[:3] not in ("pad", "bos", "eos")}
    given = {**values, **marks, **UNTIED, key: {**text.to_dict(), **UNTIED}}
    return with_padding(type(config).from_dict(given))


@contextmanager
def _libraries_may_lack() -> Iterator[None]:
    """Leaves out parts of which a library is not installed: text does not go through them."""
    make = AutoModel.from_config

    def made(*given: Any, **options: Any) -> nn.Module:
        try:
            module: nn.Module = make(*given, **options)  # type: ignore[no-untyped-call]
        except ImportError:
            return nn.Identity()
        return module

    AutoModel.from_config = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        AutoModel.from_config = make  # type: ignore[method-assign]
