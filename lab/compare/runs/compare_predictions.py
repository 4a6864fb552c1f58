"""Measures how far one engine's predictions are from another's: both in memory, on windows of one text."""

from __future__ import annotations

from turnout.config import EngineConfig
from turnout.core.errors import ModelError
from turnout.core.registry.registry import Registry
from turnout.lab.compare.runs.protocol import Incomparable, QualityResult, QualityTask
from turnout.lab.quality.perplexity import measure_deviation
from turnout.lab.quality.served import of_engine
from turnout.runner.assembly import build_engine
from turnout.runner.checkpoint import Checkpoint, open_checkpoint
from turnout.text.tokenizer import load_tokenizer
from turnout.text.vocabulary import vocabulary_difference

__all__ = ["WINDOW", "compare_predictions"]

WINDOW = 512
"""Tokens that are read together, where the models have so many positions."""


def compare_predictions(order: QualityTask) -> QualityResult | Incomparable:
    """Through KV memory as it is served from, so that what is stored there in fewer bits counts, too.

    Raises ConfigError or ModelError as `build_engine` does, and for a text in which there is nothing to
    predict.
    """
    configs = [EngineConfig(**config) for config in order.configs]
    base, other = checkpoints = [_checkpoint(config) for config in configs]
    try:
        difference = vocabulary_difference(base.folder, other.folder)
    except ModelError as error:  # of no tokenizer, which serving tokens needs none of
        return Incomparable(str(error))
    if difference is not None:
        return Incomparable(f"their vocabularies differ: {difference}")
    window = min(WINDOW, *(checkpoint.spec.max_positions for checkpoint in checkpoints))
    reference, found = (of_engine(build_engine(_small(config, window)).engine) for config in configs)
    tokens = load_tokenizer(base.folder).encode(order.text)[: order.tokens]
    return QualityResult(measure_deviation(found, reference, tokens, window=window, label="quality"))


def _checkpoint(config: EngineConfig) -> Checkpoint:
    return open_checkpoint(
        Registry.of(config),
        config.model,
        config.revision,
        config.model_impl,
        trust_remote_code=config.trust_remote_code,
        overrides=config.hf_overrides,
    )


def _small(config: EngineConfig, window: int) -> EngineConfig:
    """With KV memory for one window."""
    return config.model_copy(update={"max_num_seqs": 1, "max_model_len": window})
