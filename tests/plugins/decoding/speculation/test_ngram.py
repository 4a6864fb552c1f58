"""Prompt lookup drafts what followed the longest match, the latest of them."""

from __future__ import annotations

import random
import time

import pytest

from turnout.core.interfaces.proposer import DraftRequest
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.proposers.ngram import NGram


def sequence(tokens: list[int]) -> TokenSequence:
    spec = RequestSpec(id="r", prompt=tokens, params=SamplingParams(), seed=0)
    return Request(spec, Greedy(), 0.0, 10**6, frozenset()).live[0]


def drafted(tokens: list[int], count: int = 4, **options: int) -> list[int]:
    proposals = list(NGram(**options).propose([DraftRequest(sequence(tokens), count, False)]))
    return proposals[0].tokens if proposals else []


@pytest.mark.parametrize(
    ("tokens", "options", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2], {}, [3, 4, 5, 1]),
        ([1, 2, 8, 9, 9, 9, 9, 9, 1, 2, 3, 7, 7, 7, 1, 2], {}, [3, 7, 7, 7]),  # the latest
        ([5, 1, 2, 8, 9, 9, 9, 6, 1, 2, 3, 7, 7, 5, 1, 2], {}, [8, 9, 9, 9]),  # but rather the longest
        ([1, 2, 3], {}, []),
        ([4, 1, 2, 3, 1], {}, []),  # one token is too little
        ([4, 1, 2, 3, 1], {"shortest": 1}, [2, 3, 1, 2]),
        ([1, 2, 3, 4, 9, 2, 3], {"shortest": 3}, []),
        ([1, 2, 3, 4, 9, 1, 2, 3], {"shortest": 3}, [4, 9, 1, 2]),
        ([7, 7, 7], {}, [7, 7, 7, 7]),  # a match that reaches the end goes on with its own copy
        ([1, 2, 1, 2, 1, 2], {}, [1, 2, 1, 2]),
        ([3], {"shortest": 1}, []),
        ([3, 3], {"shortest": 1}, [3, 3, 3, 3]),
    ],
)
def test_what_is_drafted(tokens: list[int], options: dict[str, int], expected: list[int]) -> None:
    assert drafted(tokens, **options) == expected


def brute_force(tokens: list[int], count: int, longest: int, shortest: int) -> list[int]:
    for length in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[-length:]:
                copied = tokens[end:]
                while len(copied) < count:
                    copied += tokens[end:]
                return copied[:count]
    return []


def test_drafts_are_those_of_brute_force_as_the_text_grows() -> None:
    rng = random.Random(0)
    for _ in range(60):
        longest, shortest = rng.randrange(2, 6), rng.randrange(1, 3)
        proposer, text = NGram(longest=longest, shortest=shortest), sequence([rng.randrange(4)])
        for _ in range(40):
            text.tokens += [rng.randrange(4) for _ in range(rng.randrange(1, 4))]
            proposals = list(proposer.propose([DraftRequest(text, 5, False)]))
            found = proposals[0].tokens if proposals else []
            assert found == brute_force(text.tokens, 5, longest, shortest)
        proposer.forget([text])
        assert not proposer._texts


def test_a_long_text_is_searched_in_no_time() -> None:
    """Hundreds of steps on 30,000 tokens: a search in plain Python would take minutes."""
    rng = random.Random(1)
    proposer, text = NGram(), sequence([rng.randrange(50) for _ in range(30_000)])
    started = time.process_time()
    for _ in range(300):
        (proposal,) = proposer.propose([DraftRequest(text, 5, False)])
        text.tokens.append(proposal.tokens[0])
    assert time.process_time() - started < 2
