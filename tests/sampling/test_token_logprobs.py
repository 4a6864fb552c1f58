"""Log-probabilities are the model's own, for the rows that ask."""

from __future__ import annotations

import torch

from turnout.sampling.logprobs import token_logprobs


def test_logprobs_are_the_models_own_and_only_for_those_who_ask() -> None:
    rows = torch.randn(3, 10, generator=torch.Generator().manual_seed(0))
    none, just_chosen, three = token_logprobs(rows, torch.tensor([4, 5, 6]), [None, 0, 3])()
    assert none is None
    expected = rows.log_softmax(-1)
    assert just_chosen is not None and just_chosen.top == [] and just_chosen.token == 5
    assert three is not None and abs(three.logprob - expected[2, 6].item()) < 1e-6
    assert [token for token, _ in three.top] == rows[2].topk(3).indices.tolist()


def test_more_than_the_vocabulary_are_all_of_it() -> None:
    """A request for 20 of a vocabulary of 10 failed, and one for as many of its prompt ended the engine."""
    rows = torch.randn(2, 10, generator=torch.Generator().manual_seed(0))
    many, few = token_logprobs(rows, torch.tensor([4, 5]), [20, 3])()
    assert many is not None and [token for token, _ in many.top] == rows[0].argsort(descending=True).tolist()
    assert few is not None and len(few.top) == 3
