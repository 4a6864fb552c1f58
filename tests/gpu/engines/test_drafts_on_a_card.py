"""A draft model's drafts stay on the device until all of them were made: they are those that a CPU makes.

On a CPU each draft token is read as soon as it is made, and so who ends, and where, is always known there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from card_tensors import Tensors
from toy_speculation import EOS, VOCABULARY, TensorRunner, ToyDraft

from turnout.core.interfaces.proposer import DraftRequest, Proposal
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy

MORE = (2, 3, *range(5, 12))


class OnACard(TensorRunner):
    """Its logits are on the device, and so are the tokens that it looks up."""

    looked_up = 0

    def run(self, plan: Plan) -> Logits:
        known = [token for tokens in plan.chosen for token in tokens.tolist()]
        for chunk in plan.chunks:
            self.looked_up += sum(token < 0 for token in chunk.tokens)
            chunk.tokens[:] = [known[-1 - token] if token < 0 else token for token in chunk.tokens]
        logits = super().run(plan)
        return replace(logits, values=logits.values.to("cuda"))


def sequences(rng: random.Random) -> list[TokenSequence]:
    found = []
    for seed in range(6):
        params = SamplingParams(temperature=rng.choice([0.0, 0.9]))
        prompt = [rng.randrange(1, VOCABULARY) for _ in range(rng.randint(2, 9))]
        spec = RequestSpec(id=str(seed), prompt=prompt, params=params, seed=seed)
        found.append(Request(spec, Greedy(), 0.0, 200, frozenset({EOS})).live[0])
    return found


def served(draft: ToyDraft, seed: int) -> Iterator[list[tuple[str, list[int], torch.Tensor | None]]]:
    """What is drafted, step after step, for sequences that go on with some of it and a token more."""
    rng = random.Random(seed)
    texts = sequences(rng)
    for _ in range(8):
        requests = [
            DraftRequest(text, rng.randint(1, 5), not text.request.params.greedy and rng.random() < 0.7)
            for text in texts
            if rng.random() < 0.9
        ]
        proposals: dict[TokenSequence, Proposal] = {each.sequence: each for each in draft.propose(requests)}
        yield [
            (text.request.id, each.tokens, None if each.probabilities is None else each.probabilities.cpu())
            for text, each in proposals.items()
        ]
        for text in texts:
            drafts = proposals[text].tokens if text in proposals else []
            accepted = drafts[: rng.randint(0, len(drafts))]
            text.tokens += [*(token for token in accepted if token != EOS), rng.randrange(1, VOCABULARY)]


@pytest.mark.parametrize("seed", [0, 1, 4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE)])
def test_whichever_sequences_end_and_however_deep_each_is(seed: int, card: Tensors) -> None:
    draft = ToyDraft()
    draft.runner = draft.drafter._runner = OnACard(draft.kv, draft.runner.model)
    lengths = set()
    for found, expected in zip(served(draft, seed), served(ToyDraft(), seed), strict=True):
        assert [each[:2] for each in found] == [each[:2] for each in expected]
        for (_, tokens, mine), (_, _, other) in zip(found, expected, strict=True):
            lengths.add(len(tokens))
            assert (mine is None) == (other is None)
            if mine is not None:
                torch.testing.assert_close(mine, other)
    assert len(lengths) > 2
    assert draft.runner.looked_up
