"""Masks are a function of the tokens: however a place in the grammar is reached, its mask is the same."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator

import msgspec
import pytest
import torch
from babbler import END
from torch import Tensor

from turnout import LLM, SamplingParams, StructuredOutputs
from turnout.core.engine.logits_processing import LogitsProcessors, adjust
from turnout.core.interfaces.logits_processor import Row, ServedModel
from turnout.core.types.request import Request, RequestSpec, Resumption
from turnout.core.types.request import Sequence as TokenSequence
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.logits_processors.structured.bitmasks import forbid
from turnout.plugins.logits_processors.structured_output import StructuredOutput

VOCABULARY = 4096
LISTS = StructuredOutputs(regex=r"(\[(\d{1,3}|true|[a-f]+)(, ?(\d{1,3}|true|[a-f]+))*\] ?)+")


@pytest.fixture(scope="module")
def processor(llm: LLM) -> Iterator[StructuredOutput]:
    processor = StructuredOutput()
    processor.start(ServedModel(resolve_model("turnout-tiny"), VOCABULARY, frozenset({END})))
    yield processor


def a_sequence(
    processor: StructuredOutput, output: list[int], form: StructuredOutputs = LISTS
) -> TokenSequence:
    params = SamplingParams(max_tokens=500, structured_outputs=form)
    request = Request(
        RequestSpec(id="r", prompt=[1, 2], params=params, seed=0), Greedy(), 0.0, 500, frozenset({END})
    )
    request.processors = LogitsProcessors([("structured output", processor)]).wanted(request)
    request.live[0].tokens += output
    return request.live[0]


def masks(rows: list[Row]) -> Tensor:
    """bool [rows, vocabulary]: what may come."""
    return adjust(torch.zeros(len(rows), VOCABULARY), rows) == 0


def anew(processor: StructuredOutput, row: Row) -> Tensor:
    """The same place, by a request that was never seen before, without draft tokens."""
    return masks([Row(a_sequence(processor, [*row.sequence.output, *row.draft_tokens]), 0)])[0]


def walk(
    processor: StructuredOutput, sequence: TokenSequence, length: int, rng: random.Random
) -> tuple[int, ...]:
    """Random tokens that may follow, up to the end."""
    path: list[int] = []
    while len(path) < length and END not in path:
        mask = anew(processor, Row(sequence, 0, tuple(path)))
        path.append(rng.choice(mask.nonzero()[:, 0].tolist()))
    return tuple(path)


@pytest.mark.parametrize("seed", range(6))
def test_drafts_forks_and_steps_come_to_the_same_masks(processor: StructuredOutput, seed: int) -> None:
    rng = random.Random(seed)
    sequence = a_sequence(processor, [])
    for _ in range(8):
        path, other = (walk(processor, sequence, rng.randint(1, 5), rng) for _ in range(2))
        fork = sequence.fork()
        sequence.request.live = (*sequence.request.live, fork)
        paths = {(), path, path[:-1], other, other[: len(other) // 2]}
        rows = [Row(one, 0, draft_tokens) for one in (sequence, fork) for draft_tokens in sorted(paths)]
        rng.shuffle(rows)
        for row, mask in zip(rows, masks(rows), strict=True):
            assert torch.equal(mask, anew(processor, row)), row.draft_tokens
        if END in path:
            break
        sequence.tokens += path[: rng.randint(1, len(path))]
        fork.tokens += other[:1]


def test_many_at_once_are_masked_in_several_threads(processor: StructuredOutput) -> None:
    rng, threads = random.Random(0), torch.get_num_threads()
    rows = []
    for _ in range(40):
        sequence = a_sequence(processor, [])
        draft_tokens = walk(processor, sequence, 3, rng)
        rows += [Row(sequence, 0), *([Row(sequence, 0, draft_tokens)] if rng.random() < 0.5 else [])]
    torch.set_num_threads(2)
    try:
        parallel = StructuredOutput()
        parallel.start(ServedModel(resolve_model("turnout-tiny"), VOCABULARY, frozenset({END})))
    finally:
        torch.set_num_threads(threads)
    moved = [Row(a_sequence(parallel, []), 0, row.draft_tokens) for row in rows]
    assert torch.equal(masks(moved), masks(rows))


def test_another_engine_goes_on_at_the_same_place(processor: StructuredOutput) -> None:
    sequence = a_sequence(processor, [])
    output = list(walk(processor, sequence, 5, random.Random(3)))
    resume = Resumption(choices=[(1, output)])
    spec = msgspec.structs.replace(sequence.request.spec, resume=resume)
    request = Request(spec, Greedy(), 0.0, 500, frozenset({END}))
    request.processors = LogitsProcessors([("structured output", processor)]).wanted(request)
    resumed = Row(request.live[0], 1)
    assert resumed.sequence.output == output
    assert torch.equal(masks([resumed])[0], anew(processor, resumed))


def test_drafts_that_leave_the_grammar_do_no_harm(processor: StructuredOutput) -> None:
    sequence = a_sequence(processor, [])
    (start,) = walk(processor, sequence, 1, random.Random(0))
    forbidden = int((~anew(processor, Row(sequence, 0, (start,)))).nonzero()[5])
    draft_tokens = (start, forbidden, start)
    rows = [Row(sequence, 0, draft_tokens[:count]) for count in range(4)]
    for together in (masks(rows), masks(rows[:2])):
        assert torch.equal(together[0], anew(processor, rows[0]))
        assert torch.equal(together[1], anew(processor, rows[1]))
        assert not together[1, forbidden]
    assert masks([rows[3]]).any()
    assert sequence.request.fault is None


def test_behind_the_end_only_the_end_may_come(processor: StructuredOutput) -> None:
    sequence = a_sequence(processor, [], StructuredOutputs(choice=["a"]))
    (letter,) = masks([Row(sequence, 0)])[0].nonzero().tolist()
    rows = [Row(sequence, 0, (*letter, END, END)[:count]) for count in range(4)]
    assert [mask.nonzero().tolist() for mask in masks(rows)] == [[letter], *[[[END]]] * 3]
    sequence.tokens += [*letter, END, END]
    for drafts in ([()], [(), (END,), (END, END)], [(END,), (END, END)]):
        found = masks([Row(sequence, 0, draft_tokens) for draft_tokens in drafts])
        assert [mask.nonzero().tolist() for mask in found] == [[[END]]] * len(drafts)


def test_an_output_that_left_its_grammar_ends_its_request_and_no_other(processor: StructuredOutput) -> None:
    astray, faithful = a_sequence(processor, [END + 300] * 3), a_sequence(processor, [])
    both = masks([Row(astray, 0), Row(faithful, 0)])
    assert "is not what the grammar allows" in (astray.request.fault or "")
    assert faithful.request.fault is None
    assert torch.equal(both[1], anew(processor, Row(faithful, 0)))


def test_what_ended_is_forgotten_at_once(processor: StructuredOutput) -> None:
    known = processor._matchers._known
    gc.collect()
    before = len(known)
    sequence = a_sequence(processor, [])
    masks([Row(sequence, 0)])
    assert len(known) == before + 1
    sequence.request.live = ()
    gc.disable()
    try:
        del sequence
        assert len(known) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("columns", [4096, 4000, 33, 32, 31])
def test_forbidding_is_minus_infinity_bit_by_bit(columns: int) -> None:
    words = (columns + 31) // 32
    generator = torch.Generator().manual_seed(columns)
    bits = torch.randint(-(2**31), 2**31, (3, words), generator=generator).to(torch.int32)
    logits = torch.randn(3, columns, generator=generator)
    expected = logits.clone()
    for row in range(3):
        for column in range(columns):
            if not (int(bits[row, column // 32]) >> column % 32) & 1:
                expected[row, column] = -torch.inf
    forbid(logits, bits)
    assert torch.equal(logits, expected)
