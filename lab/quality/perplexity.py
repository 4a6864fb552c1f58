"""How well a model predicts a text, and how far one with fewer bits is from it.

Windows of the text are read one by one, each on its own: a token is predicted from those before it in its
window. Every token but a window's first counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div
from tqdm import tqdm

from turnout.core.errors import ConfigError
from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.dense import DenseAttention
from turnout.lab.quality.deviation import Deviation, Quality

__all__ = ["PIECE", "Predict", "measure_deviation", "measure_quality", "of_module"]

PIECE = 128
"""Rows of logits that are in memory at once, of each model: a vocabulary may have 150,000 tokens."""

Predict = Callable[[Sequence[int]], Iterator[Tensor]]
"""Given a window's tokens, logits for what follows each: [`PIECE` rows or what is left, vocab_size]."""


def of_module(model: nn.Module, device: torch.device, rules: Sequence[LayerAttention] = ()) -> Predict:
    """What a module predicts that a `ModelFamily` builds, without any KV memory.

    rules: how its layers attend; empty: plainly.
    """

    def predict(tokens: Sequence[int]) -> Iterator[Tensor]:
        ids = torch.tensor(tokens, device=device)
        hidden = model(ids, torch.arange(len(ids), device=device), DenseAttention(rules))
        return map(model.logits, hidden.split(PIECE))  # type: ignore[arg-type]  # nn.Module's methods are untyped

    return predict


@torch.inference_mode()
def measure_quality(
    predict: Predict, tokens: Sequence[int], *, window: int, label: str = "measuring"
) -> Quality:
    """Raises ConfigError for a text in which there is nothing to predict."""
    nats = 0.0
    for part in _windows(tokens, window, label):
        for logits, following in _pieces(predict(part[:-1]), part[1:]):
            nats += _nats(logits, following)
    return Quality(len(tokens) - 1, nats / (len(tokens) - 1))


@torch.inference_mode()
def measure_deviation(
    predict: Predict, reference: Predict, tokens: Sequence[int], *, window: int, label: str = "measuring"
) -> Deviation:
    """Of a model from another with the same vocabulary. Raises as `measure_quality`."""
    own = theirs = agreed = divergence = 0.0
    for part in _windows(tokens, window, label):
        pairs = zip(
            _pieces(predict(part[:-1]), part[1:]), _pieces(reference(part[:-1]), part[1:]), strict=True
        )
        for (found, following), (expected, _) in pairs:
            own += _nats(found, following)
            theirs += _nats(expected, following)
            agreed += float((found.argmax(-1) == expected.argmax(-1)).sum())
            divergence += _divergence(found, expected)
    count = len(tokens) - 1
    return Deviation(
        Quality(count, theirs / count), Quality(count, own / count), agreed / count, divergence / count
    )


def _windows(tokens: Sequence[int], window: int, label: str) -> Iterator[Sequence[int]]:
    """Each begins with the token that the one before ended with, so that every token is predicted once."""
    if len(tokens) < 2:
        raise ConfigError(f"the text has {len(tokens)} tokens; two or more are needed to predict one")
    starts = range(0, len(tokens) - 1, window - 1)
    for start in tqdm(starts, desc=label, unit="window", disable=None):
        yield tokens[start : start + window]


def _pieces(predicted: Iterator[Tensor], following: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """float32 logits [rows, vocab_size] and the tokens that came, [rows]."""
    start = 0
    for logits in predicted:
        yield logits.float(), torch.tensor(following[start : start + len(logits)], device=logits.device)
        start += len(logits)


def _nats(logits: Tensor, following: Tensor) -> float:
    """Summed over rows."""
    return cross_entropy(logits, following, reduction="sum").item()


def _divergence(found: Tensor, expected: Tensor) -> float:
    """Summed over rows."""
    ours, theirs = found.log_softmax(-1), expected.log_softmax(-1)
    return kl_div(ours, theirs, log_target=True, reduction="sum").item()
