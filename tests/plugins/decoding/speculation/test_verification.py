"""What is made of drafts, one step of them."""

from __future__ import annotations

import torch

from turnout.core.types.plan import Logits
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.speculation.drafts import Draft
from turnout.plugins.decoding.speculation.verification import verify

VOCABULARY = 5


def test_a_rejected_draft_token_may_be_drawn_again_and_ends_the_draft_all_the_same() -> None:
    """Of a proposer whose probabilities are none: nothing is left of the model's but for these, so that it is
    the model's that are drawn from."""
    params = SamplingParams(temperature=1.0, logprobs=0)
    drafts = []
    for seed in range(200):
        spec = RequestSpec(id=str(seed), prompt=[1, 2], params=params, seed=seed)
        text = Request(spec, Greedy(), 0.0, 100, frozenset()).live[0]
        drafts.append(Draft(text, 0, (3, 4), torch.ones(2, VOCABULARY)))
    rows = {draft.sequence: range(3 * number, 3 * number + 3) for number, draft in enumerate(drafts)}
    found = list(verify(drafts, Logits(torch.zeros(600, VOCABULARY), rows)))
    assert {len(continuation.tokens) for continuation in found} == {1, 2, 3}
    assert sum(continuation.tokens == [3] for continuation in found) > 10
    for continuation in found:
        assert all(0 <= token < VOCABULARY for token in continuation.tokens)
        assert [scored.token for scored in continuation.details or ()] == continuation.tokens
