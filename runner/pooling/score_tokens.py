"""Decoders that rerank by the logits of two tokens, as vLLM's keys in ``config.json`` tell them.

`TOKENS` names the tokens that speak against and for a document. `QWEN3` says that the checkpoint is
Qwen3-Reranker as it was published; other rerankers bring a chat template.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnout.core.errors import ModelError
from turnout.core.types.pooling import EmbedderConfig, PairTemplate
from turnout.models.bodies.naming import body_named
from turnout.text.tokenizer import load_tokenizer

__all__ = ["as_reranker", "known_template"]

TOKENS, QWEN3 = "classifier_from_token", "is_original_qwen3_reranker"
SYSTEM = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: "
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
QUERY, DOCUMENT = "\n<Query>: ", "\n<Document>: "
END = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def as_reranker(
    folder: Path, config: Mapping[str, Any], embedder: EmbedderConfig | None
) -> tuple[dict[str, Any], EmbedderConfig | None]:
    """Returns a model's configuration and what its folder says, with the tokens that `TOKENS` names.

    Both come back as they are where it names none. Raises ModelError for tokens that the vocabulary lacks.
    """
    names = config.get(TOKENS)
    if names is None:
        return dict(config), embedder
    if not isinstance(names, list) or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ModelError(
            f'config.json: {TOKENS} should name two tokens, such as ["no", "yes"], not {names!r}'
        )
    tokenizer = load_tokenizer(folder).backend
    against, favour = (tokenizer.token_to_id(name) for name in names)
    if against is None or favour is None:
        missing = names[0] if against is None else names[1]
        raise ModelError(f"config.json: {TOKENS} names {missing!r}, which is no token of {folder}")
    body = body_named(config["architectures"][0])
    causal = {"architectures": [body.causal]} if body is not None else {}
    return {**config, **causal}, replace(embedder or EmbedderConfig(), score_tokens=(favour, against))


def known_template(config: Mapping[str, Any]) -> PairTemplate | None:
    """Returns the text around pairs of a reranker that its configuration knows by name."""
    if config.get(QWEN3) is not True:
        return None
    around = QUERY, DOCUMENT, END
    return PairTemplate((SYSTEM + INSTRUCTION + QUERY, DOCUMENT, END), (SYSTEM, *around))
