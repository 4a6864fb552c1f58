"""Reads of a ``config.json`` which scores a checkpoint's classification head gives."""

from __future__ import annotations

from turnout.core.errors import ModelError
from turnout.core.types.pooling import Activation, ScoreHead
from turnout.models.config_reader import ConfigReader

__all__ = ["read_head"]

MOST_LABELS = 100_000


def read_head(reader: ConfigReader, pooling: str) -> ScoreHead:
    """Returns the classification head. Raises ModelError for labels that are not what they should be.

    pooling: the name of the strategy whose vector it reads.
    """
    names = reader.mapping("id2label")
    if not all(str(number) in names for number in range(len(names))):
        raise reader.reject("id2label", "its keys should be the numbers from 0 on")
    if len(names) > MOST_LABELS:
        raise ModelError(f"{reader.where}: id2label names {len(names):,} labels; at most {MOST_LABELS:,}")
    count = len(names) or reader.integer("num_labels", reader.integer("_num_labels", 2), most=MOST_LABELS)
    labels = tuple(str(names.get(str(number), f"LABEL_{number}")) for number in range(count))
    return ScoreHead(labels, pooling, _activation(reader.text("problem_type", ""), count))


def _activation(problem: str, labels: int) -> Activation:
    """Returns what turns the scores of a text into probabilities: as transformers' classifiers have it."""
    if problem == "regression":
        return "none"
    return "sigmoid" if labels == 1 or problem == "multi_label_classification" else "softmax"
