"""A proposer's wrong answer costs drafts alone, and the message names the proposer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle

import pytest
import torch
from speculating import drain
from toy_speculation import VOCABULARY, toy_engine

from turnout.core.interfaces.proposer import DraftRequest, Proposal, Proposer
from turnout.core.plugin_faults import name_plugin
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.speculation.strategy import Speculative

Answer = Callable[[Sequence[DraftRequest]], object]
LENGTH = 3
"""Draft tokens that are asked for."""


class Silent(Proposer):
    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        return ()


class Mistaken(Proposer):
    """Answers what it is told to."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        return self.answer(requests)  # type: ignore[return-value]


def drafts(tokens: object, probabilities: object = None) -> Answer:
    return lambda requests: [
        Proposal(sequence, tokens, probabilities)  # type: ignore[arg-type]
        for sequence, *_ in requests
    ]


def served(proposer: Proposer, verify: str, temperature: float) -> dict[str, list[int]]:
    name_plugin(proposer, "proposer 'theirs' of theirs.py")
    engine = toy_engine(Speculative(proposer=proposer, k=LENGTH, verify=verify, adaptive=False))  # type: ignore[arg-type]
    params = SamplingParams(temperature=temperature, max_tokens=12, ignore_eos=True)
    for seed in range(4):
        engine.add(RequestSpec(id=str(seed), prompt=[3, 1, 2, seed], params=params, seed=seed))
    tokens: dict[str, list[int]] = {}
    for delta in drain(engine):
        tokens.setdefault(delta.request_id, []).extend(delta.tokens)
    return tokens


WRONG: dict[str, tuple[Answer, str]] = {
    "none": (lambda requests: None, "'NoneType' object is not iterable"),
    "ints": (lambda requests: [1, 2], "gave int; expected a Proposal"),
    "text": (drafts("123"), "drafted str; expected a list of tokens"),
    "a tuple": (drafts((1, 2)), "drafted tuple; expected a list of tokens"),
    "no int": (drafts([1.5]), "gave token 1.5, which is outside the vocabulary of 7 tokens"),
    "beyond the vocabulary": (drafts([VOCABULARY]), "gave token 7, which is outside the vocabulary"),
    "negative": (drafts([-1]), "gave token -1, which is outside the vocabulary of 7 tokens"),
    "too many": (drafts([1] * (LENGTH + 1)), "Mistaken drafted what was not asked for: [1, 1, 1, 1]"),
    "twice": (lambda requests: 2 * drafts([1])(requests), "drafted what was not asked for: [1]"),  # type: ignore[operator]
    "without end": (lambda requests: cycle(drafts([])(requests)), "drafted what was not asked for: []"),  # type: ignore[call-overload]
    "a stranger": (lambda requests: [Proposal(object(), [1])], "drafted what was not asked for: [1]"),  # type: ignore[arg-type]
    "no hash": (lambda requests: [Proposal([], [1])], "unhashable type: 'list'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_draft_is_dropped_and_its_proposer_named(
    wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer, said = WRONG[wrong]
    found = served(Mistaken(answer), "exact", temperature=1.0)
    (message,) = {record.getMessage() for record in caplog.records}
    assert message.startswith("proposer 'theirs' of theirs.py: propose failed: ") and said in message
    assert found == served(Silent(), "exact", temperature=1.0)


PROBABILITIES: dict[str, tuple[object, str]] = {
    "no tensor": ("often", "gave probabilities as str; expected a tensor"),
    "narrow": (torch.full((2, 3), 1 / 3), "as torch.float32 [2, 3]; expected torch.float32 [2, 7]"),
    "more rows": (torch.full((5, VOCABULARY), 1 / 7), "as torch.float32 [5, 7]; expected torch.float32 [2"),
    "one row": (torch.full((VOCABULARY,), 1 / 7), "as torch.float32 [7]; expected torch.float32 [2, 7]"),
    "ints": (torch.ones(2, VOCABULARY, dtype=torch.int64), "as torch.int64 [2, 7]; expected torch.float32"),
    "not a number": (torch.full((2, VOCABULARY), float("nan")), "are not finite, or 0 for the token"),
    "zeros": (torch.zeros(2, VOCABULARY), "are not finite, or 0 for the token that it drafted"),
}


@pytest.mark.parametrize("wrong", PROBABILITIES)
def test_probabilities_that_are_none_end_no_request(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    """Clients got a 500 that blamed the strategy; of zeros, each draft token became the answer."""
    probabilities, said = PROBABILITIES[wrong]
    answer = drafts([5, 5], probabilities)

    def with_room(requests: Sequence[DraftRequest]) -> object:
        return answer([request for request in requests if request.tokens > 1])

    found = served(Mistaken(with_room), "rejection", temperature=1.0)
    (message,) = {record.getMessage() for record in caplog.records}
    assert message.startswith("proposer 'theirs' of theirs.py: propose failed: ValueError: gave ")
    assert said in message
    assert all(len(tokens) == 12 and tokens.count(5) < 8 for tokens in found.values()), found


def test_probabilities_of_another_precision_are_converted(caplog: pytest.LogCaptureFixture) -> None:
    probabilities = torch.full((1, VOCABULARY), 1 / VOCABULARY, dtype=torch.float64)
    found = served(Mistaken(drafts([5], probabilities)), "rejection", temperature=1.0)
    same = served(Mistaken(drafts([5], probabilities.float())), "rejection", temperature=1.0)
    assert found == same and not caplog.records


def test_a_backlog_that_is_no_number_is_its_proposers(caplog: pytest.LogCaptureFixture) -> None:
    class Lost(Silent):
        def backlog(self, sequence: object) -> int:
            return None  # type: ignore[return-value]

    assert served(Lost(), "exact", temperature=0.0) == served(Silent(), "exact", temperature=0.0)
    (message,) = {record.getMessage() for record in caplog.records}
    assert message.startswith("proposer 'theirs' of theirs.py: backlog failed: TypeError: int() argument")
