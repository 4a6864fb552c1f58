"""The built-in processors do what the API's parameters mean, to each row alone and to many at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import OUTPUT, PROMPT, STOPS, VOCABULARY, a_row, some_logits
from torch import Tensor
from transformers import RepetitionPenaltyLogitsProcessor

from turnout.core.engine.logits_processing import adjust
from turnout.core.errors import RequestError
from turnout.core.interfaces.logits_processor import Row
from turnout.plugins.logits_processors import logit_bias

LOWEST = torch.finfo(torch.float32).min

# ------------------------------------------------------------------ what each means


def change(**params: Any) -> Tensor:
    rows = some_logits()
    return adjust(rows, [a_row(**params)]) - rows


def test_requests_that_want_no_processor_cost_nothing() -> None:
    rows = some_logits(2)
    assert adjust(rows, [a_row(), a_row(temperature=0.0)]) is rows


def test_the_models_own_logits_stay_as_they_were() -> None:
    rows = some_logits()
    before = rows.clone()
    adjust(rows, [a_row(presence_penalty=1.0)])
    assert torch.equal(rows, before)


def test_repetition_penalty_is_transformers() -> None:
    rows = some_logits()
    theirs = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([PROMPT + OUTPUT]), rows.clone())
    torch.testing.assert_close(adjust(rows, [a_row(repetition_penalty=1.7)]), theirs)


def test_presence_and_frequency_count_the_output_alone() -> None:
    expected = torch.zeros(1, VOCABULARY)
    expected[0, 3], expected[0, 4] = -0.75, -1.0
    torch.testing.assert_close(change(presence_penalty=0.5, frequency_penalty=0.25), expected)


def test_bias_is_added() -> None:
    biased = change(logit_bias={7: 3.0, 2: -100.0})
    torch.testing.assert_close(biased[0, [7, 2]], torch.tensor([3.0, -100.0]))
    assert biased.count_nonzero() == 2


def test_a_bias_of_many_tokens_is_added_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index of 100,000 tokens for each of 64 rows took 1.4 s a step."""
    logits = some_logits(3)
    rows = [
        a_row(logit_bias={7: 3.0, 2: -100.0}),
        a_row(logit_bias={1: 2.0}),
        a_row(logit_bias={5: 1.0, 7: 2.0}),
    ]
    expected = adjust(logits, rows)
    monkeypatch.setattr(logit_bias, "DENSE", 2)
    assert torch.equal(adjust(logits, rows), expected)


def test_a_huge_bias_is_no_infinity() -> None:
    """A bias of -1e308 on the only token that is allowed gave one that is not, and a warning."""
    left = adjust(some_logits(), [a_row(logit_bias={7: -1e308}, allowed_token_ids=(7,))])
    assert left.isfinite().nonzero()[:, 1].tolist() == [7]
    left = adjust(some_logits(), [a_row(logit_bias={7: 1e308, 2: 1e308})])
    assert left.isfinite().all() and left.topk(2).indices.sort().values.tolist() == [[2, 7]]


def test_no_stop_before_min_tokens() -> None:
    rows = some_logits()
    early = adjust(rows, [a_row(min_tokens=4)])
    assert (early == LOWEST).nonzero()[:, 1].tolist() == sorted(STOPS)
    assert torch.equal(adjust(rows, [a_row(min_tokens=3)]), rows)
    assert torch.equal(adjust(rows, [a_row(draft_tokens=(1,), min_tokens=4)]), rows)


def test_only_allowed_tokens_are_left() -> None:
    rows = some_logits()
    left = adjust(rows, [a_row(allowed_token_ids=(9, 2, 9))])
    assert (left > -torch.inf).nonzero()[:, 1].tolist() == [2, 9]
    assert torch.equal(left[0, [2, 9]], rows[0, [2, 9]])


@pytest.mark.parametrize(
    ("words", "banned"),
    [
        ([[7]], [7]),
        ([[4, 8]], [8]),
        ([[4, 4, 8], [3, 4, 8]], [8]),
        ([[3, 4, 4, 8]], [8]),
        ([[3, 3, 4, 4, 8]], []),  # its first token is the prompt's
        ([[3, 8]], []),
        ([[1, 2, 3, 3, 3, 4, 4, 8]], []),
    ],
)
def test_the_last_token_of_a_bad_word_is_held_back_where_the_others_precede_it(
    words: list[list[int]], banned: list[int]
) -> None:
    left = adjust(some_logits(), [a_row(bad_words_token_ids=words)])
    assert (left == LOWEST).nonzero()[:, 1].tolist() == banned


def test_drafts_count_as_output() -> None:
    row = a_row(draft_tokens=(7, 8), bad_words_token_ids=[[4, 7, 8, 1]], frequency_penalty=1.0)
    rows = some_logits()
    left = adjust(rows, [row])
    assert left[0, 1] == LOWEST
    torch.testing.assert_close((left - rows)[0, [3, 4, 7, 8]], torch.tensor([-1.0, -2.0, -1.0, -1.0]))


def test_a_row_in_which_every_token_is_held_back_still_has_a_distribution() -> None:
    """It had none, and the token drawn from it was outside the vocabulary."""
    row = a_row(min_tokens=50)
    row.request.stop_ids = frozenset(range(VOCABULARY))
    expected = torch.full((1, VOCABULARY), 1 / VOCABULARY)
    torch.testing.assert_close(adjust(some_logits(), [row]).softmax(-1), expected)


def test_among_contradictions_allowed_tokens_stay_the_only_ones() -> None:
    left = adjust(some_logits(), [a_row(allowed_token_ids=[5], min_tokens=50)])
    assert left.softmax(-1)[0].tolist() == [float(token == 5) for token in range(VOCABULARY)]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"allowed_token_ids": []}, "allowed_token_ids must hold at least one"),
        ({"allowed_token_ids": ["a"]}, "allowed_token_ids must hold token ids"),
        ({"bad_words": [""]}, "bad_words must hold strings, none of them empty"),
        ({"bad_words": "word"}, "bad_words must be a list"),
        ({"bad_words_token_ids": [[]]}, "no empty sequence"),
        ({"bad_words_token_ids": [3]}, "bad_words_token_ids must be a list"),
        ({"bad_words": ["word"]}, "bad_words reached the engine as text"),
    ],
)
def test_what_cannot_be_meant_is_refused(params: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError, match=named):
        a_row(**params)


# ------------------------------------------------------------------ any rows, any parameters

tokens = st.integers(0, VOCABULARY - 1)
some_tokens = st.lists(tokens, max_size=8)
sampling_params = st.fixed_dictionaries(
    {},
    optional={
        "presence_penalty": st.sampled_from([-1.5, 0.5, 2.0]),
        "frequency_penalty": st.sampled_from([-1.0, 0.25]),
        "repetition_penalty": st.sampled_from([0.5, 1.1, 2.0]),
        "logit_bias": st.dictionaries(tokens, st.sampled_from([-100.0, -0.5, 3.0])),
        "min_tokens": st.integers(0, 12),
        "bad_words_token_ids": st.lists(st.lists(tokens, min_size=1, max_size=3), min_size=1, max_size=4),
        "allowed_token_ids": st.lists(tokens, min_size=1),
    },
)
rows_of_all_kinds = st.lists(
    st.builds(
        lambda prompt, output, draft_tokens, params: a_row(prompt, output, tuple(draft_tokens), **params),
        st.lists(tokens, min_size=1, max_size=8),
        some_tokens,
        some_tokens,
        sampling_params,
    ),
    min_size=1,
    max_size=6,
)


def reference(logits: Tensor, row: Row) -> list[float]:
    """One row, token by token, as the parameters' definitions have it."""
    params, prompt = row.params, row.request.prompt
    output = [*row.sequence.output, *row.draft_tokens]
    counts, values = Counter(output), logits.tolist()
    for token in {*prompt, *output}:
        factor = params.repetition_penalty
        values[token] = values[token] / factor if values[token] > 0 else values[token] * factor
    for token, count in counts.items():
        values[token] -= params.presence_penalty + params.frequency_penalty * count
    for token, bias in params.logit_bias.items():
        values[token] += bias
    if len(output) < params.min_tokens:
        for token in STOPS:
            values[token] = LOWEST
    for word in params.bad_words_token_ids:
        if len(word) <= len(output) + 1 and output[len(output) - len(word) + 1 :] == list(word[:-1]):
            values[word[-1]] = LOWEST
    if params.allowed_token_ids is not None:
        values = [v if t in params.allowed_token_ids else -torch.inf for t, v in enumerate(values)]
    return values


@settings(max_examples=150, deadline=None)
@given(rows_of_all_kinds)
def test_a_batch_is_the_definition_row_by_row_and_each_row_alone(rows: list[Row]) -> None:
    logits = some_logits(len(rows))
    together = adjust(logits, rows)
    expected = torch.tensor([reference(values, row) for values, row in zip(logits, rows, strict=True)])
    torch.testing.assert_close(together, expected)
    alone = [adjust(logits[number : number + 1], [row]) for number, row in enumerate(rows)]
    assert torch.equal(together, torch.cat(alone))


@settings(max_examples=50, deadline=None)
@given(sampling_params, st.lists(tokens, min_size=1, max_size=200), st.integers(1, 5))
def test_what_is_kept_from_step_to_step_changes_nothing(
    params: dict[str, Any], output: list[int], stride: int
) -> None:
    """Step by step with forks on the way, as against a sequence that is seen for the first time."""
    growing = a_row(output=[], **params).sequence
    for start in range(0, len(output), stride):
        fork = growing.fork()
        growing.tokens += output[start : start + stride]
        fork.tokens += [7]
        rows = [Row(growing, 0), Row(growing, 0, (1, 1)), Row(fork, 1)]
        new = [a_row(output=row.sequence.output, draft_tokens=row.draft_tokens, **params) for row in rows]
        logits = some_logits(3, seed=start)
        assert torch.equal(adjust(logits, rows), adjust(logits, new))
