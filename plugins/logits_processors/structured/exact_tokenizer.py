"""A model's vocabulary for llguidance, which spells a text byte by byte as it was asked for.

Where a form leaves only one text, llguidance tokenizes that text to find its tokens. The model's own
tokenizer would change it: a normalizer composes characters, and a special token's name becomes that token. So
the compiler gets the tokenizer without normalizer, and with names of special tokens that no text contains.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from turnout.core.interfaces.logits_processor import ServedModel
from turnout.plugins.logits_processors.structured.vocabulary import Vocabulary
from turnout.text.tokenizer import is_marker, tokenizer_json

__all__ = ["read_vocabulary"]

SPACE = "\u2581"
"""Stands for a space in the tokens of SentencePiece."""


def read_vocabulary(model: ServedModel) -> Vocabulary:
    """Reads a checkpoint's vocabulary. Raises ValueError or ModelError if it cannot hold outputs to forms."""
    if not model.eos_token_ids:
        raise ValueError("it names no end-of-sequence token, so no output could end")
    tokenizer = json.loads(tokenizer_json(model.folder))
    tokenizer["normalizer"] = _spelling(tokenizer.get("normalizer"))
    added = tokenizer.get("added_tokens", ())
    specials = {
        token["content"]: token["id"] for token in added if is_marker(token["special"], token["content"])
    }
    _hide(tokenizer, {name: f"<{secrets.token_hex(16)}>" for name in specials})
    return Vocabulary(
        tokenizer=json.dumps(tokenizer, ensure_ascii=False),
        size=model.vocab_size,
        ends=sorted(model.eos_token_ids),
        specials=specials,
    )


def _spelling(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    """The part of a normalizer that only writes spaces as tokens do; None if there is none."""
    if normalizer is None:
        return None
    if normalizer["type"] == "Sequence":
        parts = [part for part in map(_spelling, normalizer["normalizers"]) if part]
        return {**normalizer, "normalizers": parts} if parts else None
    writes_spaces = normalizer["type"] == "Replace" and normalizer["content"] == SPACE
    return normalizer if writes_spaces else None


def _hide(tokenizer: dict[str, Any], names: dict[str, str]) -> None:
    """Gives tokens other names, wherever a ``tokenizer.json`` refers to them."""
    tokenizer["post_processor"] = None
    for token in tokenizer.get("added_tokens", ()):
        token["content"] = names.get(token["content"], token["content"])
    model = tokenizer["model"]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(piece, piece): id for piece, id in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
