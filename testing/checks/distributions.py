"""The toy model's probabilities under sampling parameters, by definition; a chi-square test of samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from turnout.core.types.sampling_params import SamplingParams
from turnout.testing.toy.model import VOCABULARY, toy_logits

__all__ = ["assert_follows", "probabilities"]


def probabilities(context: Sequence[int], params: SamplingParams) -> list[float]:
    """The next token's: temperature, then top-k, top-p and min-p, each on what the one before left."""
    logits = [value / params.temperature for value in toy_logits(context)]
    highest = max(logits)
    weights = [math.exp(value - highest) for value in logits]
    order = sorted(range(VOCABULARY), key=lambda token: -weights[token])
    kept = order[: params.top_k] if params.top_k > 0 else order
    total = sum(weights[token] for token in kept)
    nucleus, reached = list[int](), 0.0
    for token in kept:
        if reached >= params.top_p:
            break
        nucleus.append(token)
        reached += weights[token] / total
    kept = [token for token in nucleus if weights[token] >= params.min_p * weights[order[0]]]
    total = sum(weights[token] for token in kept)
    return [weights[token] / total if token in kept else 0.0 for token in range(VOCABULARY)]


def assert_follows(
    seen: Sequence[tuple[int, ...]], expected: Mapping[tuple[int, ...], float], what: str
) -> None:
    """Fails if `seen` does not follow `expected`: a chi-square test, wrong by chance once in 30,000 times.

    what: what was sampled, for the message.
    """
    counts, rare_seen, rare_wanted, statistic, bins = Counter(seen), 0, 0.0, 0.0, 0
    for outcome, probability in expected.items():
        wanted = probability * len(seen)
        if wanted < 5:
            rare_seen, rare_wanted = rare_seen + counts[outcome], rare_wanted + wanted
        else:
            statistic, bins = statistic + (counts[outcome] - wanted) ** 2 / wanted, bins + 1
    impossible = sum(count for outcome, count in counts.items() if not expected.get(outcome))
    assert not impossible, (
        f"{what}: {impossible} of {len(seen)} answers have probability 0 under the model; expected none"
    )
    if rare_wanted >= 1:
        statistic, bins = statistic + (rare_seen - rare_wanted) ** 2 / rare_wanted, bins + 1
    if bins < 2:
        return
    freedom = bins - 1
    # Wilson and Hilferty 1931, at four standard deviations.
    bound = freedom * (1 - 2 / (9 * freedom) + 4 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert statistic < bound, (
        f"{what}: the answers do not follow the model's distribution: chi-square is {statistic:.0f} with "
        f"{freedom} degrees of freedom, expected less than {bound:.0f}"
    )
