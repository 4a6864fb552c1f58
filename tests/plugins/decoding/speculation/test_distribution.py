"""Sampled answers are distributed as the model's own are: chi-square against exact probabilities.

The bound is crossed by chance once in thirty thousand times, and all noise is seeded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from speculating import drain
from toy_speculation import VOCABULARY, Reckless, ToyDraft, served_model, toy_engine

from turnout.core.engine.logits_processing import LogitsProcessors, adjust
from turnout.core.interfaces.logits_processor import Row
from turnout.core.interfaces.proposer import Proposer
from turnout.core.registry.registry import Registry
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.speculation.drafts import Draft
from turnout.plugins.decoding.speculation.rejection import UNUSABLE, by_rejection
from turnout.plugins.decoding.speculation.strategy import Speculative
from turnout.plugins.proposers.ngram import NGram
from turnout.sampling.distributions import token_weights

PROMPT = [3, 1, 2, 3, 1, 2, 3, 1]
TOKENS = 4
FEW, MANY = 1000, 4000
"""Answers: a test of few finds what is far from right."""


def assert_distributed(seen: Sequence[int], expected: np.ndarray) -> None:
    """seen: outcomes, numbered; expected: their probabilities."""
    counts = np.bincount(seen, minlength=expected.size)
    wanted = expected.ravel() * len(seen)
    rare = wanted < 5
    bins = [
        *zip(counts[~rare], wanted[~rare], strict=True),
        (counts[rare].sum(), max(wanted[rare].sum(), 1e-9)),
    ]
    statistic = sum((count - want) ** 2 / want for count, want in bins if want >= 1)
    freedom = len(bins) - 1
    bound = (
        freedom * (1 - 2 / (9 * freedom) + 4 * (2 / (9 * freedom)) ** 0.5) ** 3
    )  # Wilson and Hilferty 1931
    assert statistic < bound, (
        f"chi-square {statistic:.0f} with {freedom} degrees of freedom; bound {bound:.0f}"
    )


# ------------------------------------------------------------------ one step


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"temperature": 0.7, "top_p": 0.8},
        pytest.param({"top_k": 3}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_one_or_two_drafts_verified_by_rejection(params: dict[str, Any]) -> None:
    """All that follows from two draft tokens drawn from a wrong distribution: pairs of tokens."""
    draws, generator = 8_000, torch.Generator().manual_seed(1)
    target = 1.5 * torch.randn(3, VOCABULARY, generator=generator)
    wrong = (target[:2] + torch.randn(2, VOCABULARY, generator=generator)).softmax(-1)
    draft_tokens = torch.multinomial(wrong, draws, replacement=True, generator=generator).T
    chosen = SamplingParams(**params)
    drafts = [
        Draft(_sequence(chosen, seed), 0, tuple(pair), wrong)
        for seed, pair in enumerate(draft_tokens.tolist())
    ]
    follows = by_rejection(target.repeat(draws, 1), drafts).view(draws, 3).tolist()
    answers = [[token for token in rows if token >= 0] for rows in follows]
    assert {1, 2, 3} == {len(answer) for answer in answers}
    weights = token_weights(target, [chosen] * 3)
    first, second, third = (weights / weights.sum(-1, keepdim=True)).double().numpy()
    assert_distributed([answer[0] for answer in answers], first)
    longer = [answer for answer in answers if len(answer) > 1]
    assert_distributed([answer[1] for answer in longer], second)
    assert_distributed([answer[2] for answer in longer if len(answer) > 2], third)


@pytest.mark.parametrize("given", [0.0, float("nan"), float("inf"), float("-inf")])
def test_a_draft_whose_probabilities_are_none_is_rejected(given: float) -> None:
    """A token of probability 0 was accepted whatever the model thought of it."""
    draws, generator = 2_000, torch.Generator().manual_seed(1)
    target = 1.5 * torch.randn(3, VOCABULARY, generator=generator)
    probabilities = torch.full((2, VOCABULARY), given)
    drafts = [Draft(_sequence(SamplingParams(), seed), 0, (4, 4), probabilities) for seed in range(draws)]
    follows = by_rejection(target.repeat(draws, 1), drafts).view(draws, 3)
    assert_distributed(follows[:, 0].tolist(), target[0].softmax(-1).double().numpy())
    assert (follows[:, 1:] == UNUSABLE).all()


def _sequence(params: SamplingParams, seed: int):
    spec = RequestSpec(id="r", prompt=PROMPT, params=params, seed=seed)
    return Request(spec, Greedy(), 0.0, 100, frozenset()).live[0]


# ------------------------------------------------------------------ whole answers

PENALTIES: dict[str, Any] = {
    "presence_penalty": 0.6,
    "frequency_penalty": 0.4,
    "repetition_penalty": 1.3,
    "logit_bias": {2: 0.7},
    "temperature": 0.9,
}


def exact_probabilities(params: SamplingParams) -> np.ndarray:
    """Of the first tokens of an answer: [VOCABULARY] * TOKENS, by recomputing every one of them."""
    joint = np.ones([VOCABULARY] * TOKENS)
    request = _request(params)
    for length in range(TOKENS):
        starts = list(product(range(VOCABULARY), repeat=length))
        logits = torch.tensor([served_model([*PROMPT, *start]) for start in starts])
        rows = [Row(request.live[0], 0, start) for start in starts]
        weights = token_weights(adjust(logits, rows), [params] * len(rows))
        step = (weights / weights.sum(-1, keepdim=True)).double().numpy()
        joint *= step.reshape([VOCABULARY] * (length + 1) + [1] * (TOKENS - length - 1))
    return joint


def _request(params: SamplingParams) -> Request:
    from turnout.core.interfaces.logits_processor import ServedModel

    processors = LogitsProcessors(Registry.load().logits_processors())
    processors.start(ServedModel(None, VOCABULARY, frozenset()))  # type: ignore[arg-type]
    spec = RequestSpec(id="r", prompt=PROMPT, params=params, seed=0)
    request = Request(spec, Greedy(), 0.0, 100, frozenset())
    request.processors = processors.wanted(request)
    return request


def sample(
    strategy: Speculative, params: SamplingParams, draws: int, *, least: float = 0.05, **engine_options: int
) -> np.ndarray:
    """Answers, [draws, TOKENS], in which at least so many draft tokens of each were accepted."""
    engine = toy_engine(strategy, **engine_options)
    for seed in range(draws):
        engine.add(RequestSpec(id=str(seed), prompt=PROMPT, params=params, seed=seed))
    answers: list[list[int]] = [[] for _ in range(draws)]
    for delta in drain(engine):
        answers[int(delta.request_id)] += delta.tokens
    counters = engine.stats().counters
    accepted, drafts = (counters[f"spec_decode_num_{what}_tokens"] for what in ("accepted", "draft"))
    assert least * draws < accepted < drafts
    return np.array(answers)


PROPOSERS: dict[str, Callable[[], Proposer]] = {
    "n-gram": lambda: NGram(shortest=1),
    "draft model": ToyDraft,
    "a stranger's": Reckless,
}


DRAWS = pytest.mark.parametrize("draws", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


@DRAWS
@pytest.mark.parametrize(
    ("proposer", "verify", "chosen"),
    [
        ("n-gram", "auto", {}),
        ("draft model", "exact", {}),
        ("draft model", "rejection", PENALTIES),
        pytest.param("draft model", "rejection", {}, marks=pytest.mark.slow),
        pytest.param("a stranger's", "auto", {}, marks=pytest.mark.slow),
        *[
            pytest.param(proposer, verify, PENALTIES, marks=pytest.mark.slow)
            for proposer, verify in [("n-gram", "auto"), ("draft model", "exact"), ("a stranger's", "auto")]
        ],
    ],
    ids=str,
)
def test_pairs_of_neighbouring_tokens(proposer: str, verify: Any, chosen: dict[str, Any], draws: int) -> None:
    params = SamplingParams(max_tokens=TOKENS, ignore_eos=True, **chosen)
    strategy = Speculative(proposer=PROPOSERS[proposer](), k=2, verify=verify, adaptive=False)
    assert_follows(sample(strategy, params, draws), params)


@DRAWS
def test_pairs_when_depths_adapt_and_requests_are_preempted(draws: int) -> None:
    """Whether there is a draft depends on the past and on memory, never on the draft itself."""
    params = SamplingParams(max_tokens=TOKENS, ignore_eos=True)
    strategy = Speculative(proposer=ToyDraft(blocks=24, budget=16), k=3, verify="rejection")
    assert_follows(sample(strategy, params, draws, least=0.0025, blocks=40, budget=40, slots=24), params)


def assert_follows(answers: np.ndarray, params: SamplingParams) -> None:
    joint = exact_probabilities(params)
    for first in range(TOKENS - 1):
        others = tuple(axis for axis in range(TOKENS) if axis not in (first, first + 1))
        assert_distributed(answers[:, first] * VOCABULARY + answers[:, first + 1], joint.sum(axis=others))
