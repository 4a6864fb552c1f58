"""How a model reads pairs of texts: by its tokenizer, or by a chat template that knows of pairs."""

from __future__ import annotations

from pathlib import Path

from turnout.core.errors import ModelError
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.pooling import EmbedderConfig, PairTemplate
from turnout.runner.pooling.score_tokens import known_template
from turnout.text.prompt.pair_template import names_pairs, read_pair_template
from turnout.text.tokenizer import load_tokenizer, template_source

__all__ = ["find_pair_template"]


def find_pair_template(
    folder: Path, spec: ModelSpec, embedder: EmbedderConfig | None, chat_template: str | None = None
) -> PairTemplate | None:
    """Returns the template of a decoder that scores pairs; None: the tokenizer joins their tokens.

    chat_template: as of `load_tokenizer`. Raises ModelError where scores need a template that the folder does
    not have.
    """
    if spec.head is None or spec.encoder:
        return None
    said = embedder or EmbedderConfig()
    known = known_template(spec.config) if chat_template is None else None
    if known is not None:
        return known
    source = template_source(folder, chat_template)
    if source is not None and names_pairs(source):
        return read_pair_template(load_tokenizer(folder, chat_template).chat_template, said.template_options)
    if not said.score_tokens:
        return None
    raise ModelError(
        f"{spec.architecture} scores pairs by the logits of tokens, which needs a chat template with the "
        f"roles query and document; {folder} has none: give one with --chat-template, or "
        "--hf-overrides '{\"is_original_qwen3_reranker\": true}' to Qwen3-Reranker"
    )
