"""Draws follow the distribution that the parameters ask for, and depend on seed and position alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.sampling import Sampling
from turnout.sampling.distributions import token_weights, truncate_by_sorting
from turnout.sampling.draws import draw
from turnout.sampling.exponential_race import exponential_race
from turnout.sampling.noise import noise_key, seed_tensor, uniform

VOCABULARY = 50
SAMPLING = Sampling()


def a_row(
    seed: int = 0, position: int = 3, index: int = 0, shared: SamplingParams | None = None, **params: Any
) -> Row:
    """`shared`: instead of `params`, where they are the same for thousands of rows."""
    chosen = shared or SamplingParams(**params)
    spec = RequestSpec(id="r", prompt=[1] * position, params=chosen, seed=seed)
    request = Request(spec, SAMPLING, 0.0, 100, frozenset())
    return Row(request.live[0], index)


def some_logits(rows: int = 1, vocabulary: int = VOCABULARY, scale: float = 2.0) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(3)) * scale


def warped(logits: Tensor, params: SamplingParams) -> Tensor:
    """The distribution by transformers' processors, min_p before top_k and top_p."""
    ids = torch.zeros(1, 1, dtype=torch.long)
    scores = TemperatureLogitsWarper(params.temperature)(ids, logits)
    if params.min_p:
        scores = MinPLogitsWarper(params.min_p)(ids, scores)
    if params.top_k > 0:
        scores = TopKLogitsWarper(params.top_k)(ids, scores)
    if params.top_p < 1:
        scores = TopPLogitsWarper(params.top_p)(ids, scores)
    return scores.softmax(dim=-1)[0]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"min_p": 0.05, "top_p": 0.9, "top_k": 30, "temperature": 1.5},
        *(
            pytest.param(params, marks=pytest.mark.slow)
            for params in (
                {"temperature": 0.5},
                {"temperature": 3.0},
                {"top_k": 5},
                {"top_p": 0.8},
                {"top_k": 20, "top_p": 0.7},
                {"min_p": 0.1},
            )
        ),
    ],
    ids=str,
)
def test_frequencies_are_those_of_transformers_distribution(params: dict[str, Any]) -> None:
    """Chi-square at 20,000 draws; the bound is the 99.99% quantile, and draws are seeded."""
    logits, draws = some_logits(), 20_000
    shared = SamplingParams(**params)
    expected = warped(logits, shared) * draws
    rows = [a_row(seed=seed, shared=shared) for seed in range(draws)]
    counts = Counter(draw(logits.expand(draws, -1), rows).tolist())
    assert set(counts) <= set(expected.nonzero().flatten().tolist())
    bins = [(counts[token], count) for token, count in enumerate(expected.tolist()) if count > 5]
    statistic = sum((seen - count) ** 2 / count for seen, count in bins)
    freedom = len(bins) - 1
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5 + 10


def test_a_vocabulary_too_flat_for_the_first_cut_is_still_cut_at_top_p() -> None:
    logits, draws = some_logits(vocabulary=2000, scale=0.1), 4000
    kept = warped(logits, SamplingParams(top_p=0.5)).nonzero().flatten().tolist()
    assert len(kept) > 512
    drawn = draw(logits.expand(draws, -1), [a_row(seed=s, top_p=0.5) for s in range(draws)])
    assert set(drawn.tolist()) <= set(kept)
    assert len(set(drawn.tolist())) > 512


def test_only_rows_whose_likeliest_tokens_are_not_enough_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One flat row among 20 made the whole batch wait for a sort of 20 vocabularies."""
    logits, sorted_rows = some_logits(20, vocabulary=2000, scale=5), []
    logits[3] /= 100
    params = [SamplingParams(top_p=0.9)] * 20
    alone = torch.cat([token_weights(logits[row : row + 1], params[:1]) for row in range(20)])
    topk = Tensor.topk

    def counted(keys: Tensor, count: int) -> Any:
        sorted_rows.extend(keys.tolist() if count == 2000 else [])
        return topk(keys, count)

    monkeypatch.setattr(Tensor, "topk", counted)
    assert torch.equal(token_weights(logits, params), alone)
    assert len(sorted_rows) == 1


def test_a_draw_does_not_depend_on_the_rows_beside_it() -> None:
    """Neighbours with other parameters change how the batch is computed, never what a row draws."""
    logits = some_logits(40, vocabulary=3000)
    chosen: list[dict[str, Any]] = [
        {},
        {"top_p": 0.9},
        {"top_k": 7},
        {"min_p": 0.2},
        {"top_k": 1000, "top_p": 0.99, "temperature": 2.0},
    ]
    rows = [a_row(seed=row, position=row + 1, **chosen[row % 5]) for row in range(40)]
    together = draw(logits, rows).tolist()
    alone = [int(draw(logits[row : row + 1], [rows[row]])) for row in range(40)]
    assert together == alone


def test_among_equally_likely_tokens_the_lower_id_counts_as_likelier() -> None:
    """Whatever order a sort leaves equals in: bf16 logits are full of them."""
    logits = torch.zeros(1, 1000)
    drawn = draw(logits.expand(500, -1), [a_row(seed=s, top_k=10) for s in range(500)])
    assert set(drawn.tolist()) == set(range(10))


def test_a_top_p_too_small_for_fp32_leaves_the_most_likely_token() -> None:
    """It left none, and the whole batch failed."""
    logits = some_logits(8)
    drawn = draw(logits, [a_row(seed=s, top_p=1e-50) for s in range(8)])
    assert drawn.tolist() == logits.argmax(dim=-1).tolist()


def test_logits_that_are_not_numbers_never_give_a_token_outside_the_vocabulary() -> None:
    logits = torch.full((2, VOCABULARY), float("nan"))
    for params in ({}, {"top_k": 5}, {"top_p": 0.5}):
        drawn = draw(logits, [a_row(seed=s, **params) for s in range(2)])
        assert all(0 <= token < VOCABULARY for token in drawn.tolist())


@pytest.mark.parametrize("temperature", [1e-5, 1e-20, 1e-30])
def test_a_tiny_temperature_is_greedy_and_does_not_overflow(temperature: float) -> None:
    logits = some_logits(30)
    drawn = draw(logits, [a_row(seed=s, temperature=temperature) for s in range(30)])
    assert drawn.tolist() == logits.argmax(dim=-1).tolist()


def test_noise_is_uniform_and_each_of_seed_choice_and_position_matters() -> None:
    values = torch.tensor([uniform(noise_key(seed, 0, 7)) for seed in range(20_000)])
    assert values.min() >= 0 and values.max() < 1
    histogram = torch.histc(values, bins=20, min=0, max=1)
    assert ((histogram - 1000) ** 2 / 1000).sum() < 60
    keys = {noise_key(*key) for key in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (0, 0, 0, b"other"))}
    assert len(keys) == 5


def test_noise_is_stable_across_processes_machines_and_releases() -> None:
    assert uniform(noise_key(42, 1, 17)) == 0.2820951466866919
    assert exponential_race(
        torch.ones(1, 1000), seed_tensor([noise_key(42, 1, 17)], torch.device("cpu"))
    ).tolist() == [587]


def test_neighbouring_positions_draw_independently() -> None:
    """Chi-square over pairs of tokens at two positions of 20,000 requests; 99.99% bound."""
    logits, draws, shared = some_logits(vocabulary=6), 20_000, SamplingParams()
    first, second = (
        draw(logits.expand(draws, -1), [a_row(seed, at, shared=shared) for seed in range(draws)])
        for at in (3, 4)
    )
    expected = torch.outer(*[logits.softmax(-1)[0]] * 2).flatten() * draws
    seen = torch.bincount(first * 6 + second, minlength=36)
    assert ((seen - expected) ** 2 / expected).sum() < 35 + 4 * 70**0.5 + 10


@pytest.mark.parametrize("chosen", [{}, {"temperature": 0.6, "top_p": 0.9}, {"top_k": 40}], ids=str)
def test_alike_distributions_mostly_draw_the_same_token_with_the_same_noise(chosen: dict[str, Any]) -> None:
    """At least (1 - d) / (1 + d) of the time, d the total variation distance between the two."""
    draws, params = 5000, SamplingParams(**chosen)
    ours = some_logits(vocabulary=500, scale=3.0)
    theirs = ours + 0.7 * torch.randn(1, 500, generator=torch.Generator().manual_seed(4))
    rows = [a_row(seed=seed, shared=params) for seed in range(draws)]
    same = draw(ours.expand(draws, -1), rows) == draw(theirs.expand(draws, -1), rows)
    overlap = torch.minimum(warped(ours, params), warped(theirs, params)).sum().item()
    assert overlap / (2 - overlap) - 0.03 < same.double().mean().item() <= overlap + 0.03


def test_a_share_of_a_large_top_k_is_of_all_of_it() -> None:
    """It was a share of the 256 most likely, unless another row of the batch needed more of them."""
    weights = token_weights(torch.zeros(1, 500), [SamplingParams(top_k=400, top_p=0.5)])
    assert weights.sum() == 200


def test_top_p_of_a_top_k_does_not_depend_on_the_other_rows() -> None:
    """The sum of the kept weights was rounded by how many another row ranked."""
    weights, rows = token_weights(some_logits(400, 2000), [SamplingParams()] * 400), 400
    best = weights.topk(50).values
    shares = (best.cumsum(-1)[:, 20] / best.sum(-1)).tolist()  # where a bit decides
    params = [SamplingParams(top_k=50, top_p=share) for share in shares]
    alone = truncate_by_sorting(weights, params)
    more = torch.cat([weights, weights[:1]])
    for most in (200, 1000):
        together = truncate_by_sorting(more, [*params, SamplingParams(top_k=most)])
        assert torch.equal(together[:rows], alone)


def test_a_top_p_of_1_cuts_no_token() -> None:
    """Unlikely tokens were cut where the sum of the others is rounded to that of all."""
    weights = token_weights(some_logits(4, 100_000), [SamplingParams(top_k=2**31 - 1)] * 4)
    assert bool((weights > 0).all())
