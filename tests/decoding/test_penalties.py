"""Penalties, bias and min_tokens change logits as transformers and OpenAI define them."""

from __future__ import annotations

from typing import Any

import torch
from transformers import RepetitionPenaltyLogitsProcessor

from turnout.core.request import Request, RequestSpec, SamplingParams
from turnout.core.request import Sequence as TokenSequence
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.logprobs import token_logprobs
from turnout.plugins.decoding.penalties import adjust

PROMPT = [1, 2, 3, 3]
OUTPUT = [3, 4, 4]


def sequence(**params: Any) -> TokenSequence:
    spec = RequestSpec(id="r", prompt=PROMPT, params=SamplingParams(**params), seed=0)
    made = Request(spec, Greedy(), 0.0, 100, frozenset({5, 6})).live[0]
    made.tokens += OUTPUT
    return made


def logits(rows: int = 1) -> torch.Tensor:
    return torch.randn(rows, 10, generator=torch.Generator().manual_seed(0))


def test_no_wishes_cost_nothing() -> None:
    rows = logits(2)
    assert adjust(rows, [sequence(), sequence()]) is rows


def test_the_models_own_logits_stay_as_they_were() -> None:
    rows = logits()
    before = rows.clone()
    adjust(rows, [sequence(presence_penalty=1.0)])
    assert torch.equal(rows, before)


def test_repetition_penalty_is_transformers() -> None:
    rows = logits()
    theirs = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([PROMPT + OUTPUT]), rows.clone())
    torch.testing.assert_close(adjust(rows, [sequence(repetition_penalty=1.7)]), theirs)


def test_presence_and_frequency_count_the_output_alone() -> None:
    rows = logits()
    change = adjust(rows, [sequence(presence_penalty=0.5, frequency_penalty=0.25)]) - rows
    expected = torch.zeros(1, 10)
    expected[0, 3], expected[0, 4] = -0.75, -1.0
    torch.testing.assert_close(change, expected)


def test_bias_is_added() -> None:
    rows = logits()
    change = adjust(rows, [sequence(logit_bias={7: 3.0, 2: -100.0})]) - rows
    assert change[0, 7].item() == 3 and change[0, 2].item() == -100 and change.count_nonzero() == 2


def test_no_stop_before_min_tokens() -> None:
    rows = logits()
    early = adjust(rows, [sequence(min_tokens=4)])
    assert (early < -1e30).nonzero().tolist() == [[0, 5], [0, 6]]
    assert adjust(rows, [sequence(min_tokens=3)]) is rows


def test_a_row_in_which_every_token_is_held_back_still_has_a_distribution() -> None:
    """It had none, and the token drawn from it was outside the vocabulary."""
    held_back = sequence(min_tokens=50, max_tokens=60)
    held_back.request.stop_ids = frozenset(range(10))
    assert torch.equal(adjust(logits(), [held_back]).softmax(-1), torch.full((1, 10), 0.1))


def test_each_row_has_its_own_wishes() -> None:
    rows = logits(3)
    changed = adjust(rows, [sequence(), sequence(logit_bias={1: 1.0}), sequence()])
    assert torch.equal(changed[[0, 2]], rows[[0, 2]]) and not torch.equal(changed[1], rows[1])


def test_logprobs_are_the_models_own_and_only_for_those_who_ask() -> None:
    rows, tokens = logits(3), torch.tensor([4, 5, 6])
    none, just_chosen, three = token_logprobs(rows, tokens, [None, 0, 3])
    assert none is None
    expected = rows.log_softmax(-1)
    assert just_chosen is not None and just_chosen.top == [] and just_chosen.token == 5
    assert three is not None and abs(three.logprob - expected[2, 6].item()) < 1e-6
    assert [token for token, _ in three.top] == rows[2].topk(3).indices.tolist()
