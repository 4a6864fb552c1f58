"""How well a model predicts a text, and how far one with fewer bits is from it.

Windows of the text are read one by one, each on its own: a token is predicted from those before it in its
window. Every token but a window's first counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, scaled_dot_product_attention
from tqdm import tqdm

from turnout.core.errors import ConfigError

__all__ = ["Quality", "measure_quality", "one_window"]


@dataclass(frozen=True)
class Quality:
    tokens: int
    """Predicted."""
    nats: float
    """Per token."""
    agreement: float | None = None
    """Share of positions where both models hold the same token likeliest."""
    divergence: float | None = None
    """KL divergence from the reference's distribution to this one's, nats per token."""

    @property
    def perplexity(self) -> float:
        return math.exp(self.nats)


@torch.inference_mode()
def measure_quality(
    model: nn.Module,
    tokens: Sequence[int],
    *,
    window: int,
    device: torch.device,
    reference: nn.Module | None = None,
    label: str = "measuring",
) -> Quality:
    """Of a module that a `ModelFamily` builds. reference: what it is compared with, on the same device."""
    if len(tokens) < 2:
        raise ConfigError(f"the text has {len(tokens)} tokens; two or more are needed to predict one")
    nats = agreed = divergence = 0.0
    count = 0
    for part in tqdm(list(_windows(tokens, window)), desc=label, unit="window", disable=None):
        ids = torch.tensor(part, device=device)
        found = _predictions(model, ids)
        nats += cross_entropy(found, ids[1:], reduction="sum").item()
        count += len(found)
        if reference is not None:
            expected = _predictions(reference, ids)
            agreed += float((found.argmax(-1) == expected.argmax(-1)).sum())
            divergence += _divergence(found, expected)
    if reference is None:
        return Quality(count, nats / count)
    return Quality(count, nats / count, agreed / count, divergence / count)


def _windows(tokens: Sequence[int], window: int) -> Iterator[Sequence[int]]:
    """Each begins with the token that the one before ended with, so that every token is predicted once."""
    for start in range(0, len(tokens) - 1, window - 1):
        yield tokens[start : start + window]


def _predictions(model: nn.Module, ids: Tensor) -> Tensor:
    """float32 logits [len(ids) - 1, vocab_size] for the tokens from the second on."""
    positions = torch.arange(len(ids), device=ids.device)
    hidden = model(ids, positions, one_window)
    logits: Tensor = model.logits(hidden[:-1])  # type: ignore[operator]  # nn.Module's methods are untyped
    return logits.float()


def _divergence(found: Tensor, expected: Tensor) -> float:
    """Summed over rows."""
    ours, theirs = found.log_softmax(-1), expected.log_softmax(-1)
    return kl_div(ours, theirs, log_target=True, reduction="sum").item()


def one_window(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over what is given and nothing before it. Implements `Attend`."""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1)
