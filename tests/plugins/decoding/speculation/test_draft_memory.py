"""What the draft has computed follows sequences by their tokens: acceptance, rejection, eviction, endings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from toy_speculation import ToyDraft

from turnout.core.interfaces.proposer import DraftRequest, Proposal
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy


def sequence(name: str, prompt: list[int], n: int = 1) -> TokenSequence:
    spec = RequestSpec(id=name, prompt=prompt, params=SamplingParams(n=n, temperature=0), seed=0)
    return Request(spec, Greedy(), 0.0, 200, frozenset()).live[0]


def propose(draft: ToyDraft, *sequences: TokenSequence, tokens: int = 3) -> dict[TokenSequence, Proposal]:
    requests = [DraftRequest(each, tokens, False) for each in sequences]
    return {proposal.sequence: proposal for proposal in draft.propose(requests)}


@pytest.fixture
def draft() -> Iterator[ToyDraft]:
    yield (made := ToyDraft())
    assert all(table for table in made.kv.tables.values())


def computed_by(draft: ToyDraft, *sequences: TokenSequence, tokens: int = 3) -> int:
    before = draft.runner.tokens
    propose(draft, *sequences, tokens=tokens)
    return draft.runner.tokens - before


def fresh_drafts(text: TokenSequence, tokens: int = 3) -> list[int]:
    """What a draft model drafts that has never seen the sequence before."""
    return propose(ToyDraft(), text, tokens=tokens)[text].tokens


def test_a_prompt_is_computed_once_and_then_only_what_is_new(draft: ToyDraft) -> None:
    text = sequence("r", [1, 2, 3, 4, 5, 6])
    assert draft.backlog(text) == 5
    assert computed_by(draft, text) == 6 + 2, "the prompt, and all draft tokens but the last"
    assert draft.backlog(text) == 0
    text.tokens.append(3)
    assert computed_by(draft, text) == 1 + 2


def test_accepted_drafts_need_not_be_computed_again(draft: ToyDraft) -> None:
    text = sequence("r", [1, 2, 3, 4, 5, 6])
    accepted = propose(draft, text)[text].tokens
    text.tokens += [*accepted, 5]
    assert draft.backlog(text) == 1, "the last draft token was never run"
    assert computed_by(draft, text) == 2 + 2
    assert propose(draft, text)[text].tokens == fresh_drafts(text)


@pytest.mark.parametrize("right", [0, 1, 2])
def test_rejected_drafts_are_overwritten(right: int, draft: ToyDraft) -> None:
    text = sequence("r", [1, 2, 3, 4, 5, 6])
    for _ in range(6):
        drafted = propose(draft, text)[text].tokens
        text.tokens += [*drafted[:right], (drafted[right] + 1) % 7]
        assert draft.backlog(text) == 0
        assert propose(draft, text)[text].tokens == fresh_drafts(text)


def test_sequences_get_drafts_together_as_alone(draft: ToyDraft) -> None:
    texts = [sequence(str(n), [1 + n % 5] * (1 + 3 * n)) for n in range(6)]
    together = propose(draft, *texts)
    assert [together[text].tokens for text in texts] == [fresh_drafts(text) for text in texts]


def test_a_long_prompt_is_caught_up_with_in_parts() -> None:
    draft, long, short = ToyDraft(budget=16), sequence("long", [1, 2, 3] * 14), sequence("short", [4, 5])
    steps = [propose(draft, long, short) for _ in range(3)]
    assert [long in step for step in steps] == [False, False, True]
    assert all(short in step for step in steps), "it delays no request"
    assert steps[-1][long].tokens == fresh_drafts(long)


def test_choices_that_parted_find_what_the_first_of_them_computed(draft: ToyDraft) -> None:
    first = sequence("r", [1, 2, 3, 4] * 12, n=3)
    siblings = [first, first.fork(), first.fork()]
    for number, sibling in enumerate(siblings):
        sibling.tokens.append(number + 1)
    assert list(propose(draft, *siblings)) == [first]
    assert draft.runner.tokens == 49 + 2
    assert computed_by(draft, *siblings) < 20
    assert [each.tokens for each in propose(draft, *siblings).values()] == [fresh_drafts(s) for s in siblings]


def test_a_sequence_without_memory_gets_no_draft_and_harms_no_other() -> None:
    draft = ToyDraft(blocks=8)
    one, other = sequence("one", [1, 2, 3] * 7), sequence("other", [3, 2, 1] * 6)
    assert list(propose(draft, one, other)) in ([one], [other])
    assert draft.kv.free < draft.kv.capacity


def test_who_was_not_asked_for_lately_gives_way_and_is_computed_again() -> None:
    draft = ToyDraft(blocks=8)
    one, other = sequence("one", [1, 2, 3] * 7), sequence("other", [3, 2, 1] * 6)
    propose(draft, one)
    assert list(propose(draft, other)) == [other]
    assert draft.backlog(one) > 0
    assert propose(draft, one)[one].tokens == fresh_drafts(one)


def test_all_memory_comes_back_whatever_order_they_end_in(draft: ToyDraft) -> None:
    texts = [sequence(str(n), [1, 2, 3, 4] * (n + 1)) for n in range(6)]
    never = sequence("never", [1, 2, 3, 4, 5, 6, 7])
    propose(draft, *texts)
    draft.backlog(never)
    for text in (texts[3], texts[0], never, *texts):
        draft.forget([text])
    assert draft.kv.free == draft.kv.capacity
    assert not draft.kv.tables and not draft.memory._held
