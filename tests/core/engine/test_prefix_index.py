"""Which engines have which prefixes: what their events say, and no more where events are lost."""

from __future__ import annotations

from itertools import islice, pairwise

import msgspec
import pytest

from turnout.core.engine.packed_prompt import ID_BYTES, PackedPrompt, packed
from turnout.core.engine.prefix_index import PrefixIndex
from turnout.core.interfaces.router import Replica, Routable
from turnout.core.types.block_events import AllBlocksCleared, BlockEvent, BlockRemoved, BlockStored, marks
from turnout.core.types.messages import Command, Submit
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams

BLOCK = 4


def stored(prompt: list[int], upto: int, salt: str = "") -> list[BlockEvent]:
    """What an engine tells that has computed a prompt."""
    events: list[BlockEvent] = []
    parent = None
    for begin, end in pairwise([0, *islice(marks(BLOCK), 20)]):
        if end > upto:
            break
        name = repr((salt, prompt[:end])).encode()
        events.append(BlockStored(name, parent, prompt[begin:end], BLOCK, salt))
        parent = name
    return events


def removed(prompt: list[int], upto: int) -> BlockRemoved:
    return BlockRemoved([repr(("", prompt[:upto])).encode()])


def routable(prompt: list[int], salt: str = "") -> Routable:
    return Routable("r", prompt, 1, cache_salt=salt)


PROMPT = list(range(40))


@pytest.mark.parametrize(
    ("block_size", "expected"),
    [(16, [16, 32, 64, 128, 256, 512, 768]), (4, [4, 8, 16, 32, 64, 128, 256]), (300, [300, 600, 900, 1200])],
)
def test_marks_are_far_apart_in_long_prompts(block_size: int, expected: list[int]) -> None:
    assert list(islice(marks(block_size), len(expected))) == expected


def test_the_longest_prefix_of_each_engine_is_found() -> None:
    index = PrefixIndex()
    index.note("a", stored(PROMPT, 32))
    index.note("b", stored([*PROMPT[:10], *range(90, 120)], 32))
    assert index.find(routable(PROMPT)) == {"a": 32, "b": 8}
    assert index.find(routable(PROMPT[:31])) == {"a": 16, "b": 8}
    assert index.find(routable(PackedPrompt(PROMPT))) == {"a": 32, "b": 8}
    assert not any(index.find(routable([7, *PROMPT])).values())
    assert not any(index.find(routable([])).values())
    replica = Replica("b", 0, 0, find=index.find)
    assert replica.cached(routable(PROMPT)) == 8


def test_a_salt_keeps_prompts_apart() -> None:
    index = PrefixIndex()
    index.note("a", stored(PROMPT, 32, salt="mine"))
    assert index.find(routable(PROMPT, "mine")) == {"a": 32}
    assert not any(index.find(routable(PROMPT)).values())


def test_what_is_evicted_or_cleared_is_found_no_more() -> None:
    index = PrefixIndex()
    for name in "ab":
        index.note(name, stored(PROMPT, 32))
    index.note("a", [removed(PROMPT, 16)])
    assert index.find(routable(PROMPT)) == {"a": 8, "b": 32}
    index.note("b", [AllBlocksCleared()])
    assert index.find(routable(PROMPT)) == {"a": 8}
    index.note("b", stored(PROMPT, 4))
    assert index.find(routable(PROMPT)) == {"a": 8, "b": 4}
    for name in "ab":
        index.forget(name)
    assert not index._holders and not index._keys and not index._bits


@pytest.mark.parametrize("lost", range(5))
def test_a_lost_event_costs_what_comes_after_it(lost: int) -> None:
    index = PrefixIndex()
    events = stored(PROMPT, 32)
    index.note("a", [event for number, event in enumerate(events) if number != lost])
    assert index.find(routable(PROMPT)).get("a", 0) == (0, 4, 8, 16, 32)[lost]


# ------------------------------------------------------------------ prompts as bytes

IDS = [0, 1, 255, 256, 151_935, 2**31]


def sent(prompt: list[int]) -> bytes:
    request = RequestSpec(id="r", prompt=prompt, params=SamplingParams(), seed=0)
    return msgspec.msgpack.encode([Submit(request)])


def test_an_engine_gets_the_same_message() -> None:
    assert sent(PackedPrompt(IDS)) == sent(IDS)
    (command,) = msgspec.msgpack.decode(sent(PackedPrompt(IDS)), type=list[Command])
    assert isinstance(command, Submit) and type(command.request.prompt) is list
    assert command.request.prompt == IDS


def test_a_part_of_a_prompt_is_a_part_of_its_bytes() -> None:
    whole = packed(PackedPrompt(IDS))
    assert whole == packed(IDS)
    assert whole[2 * ID_BYTES : 5 * ID_BYTES] == packed(IDS[2:5])


@pytest.mark.parametrize("wrong", [-1, 2**32, 2**70])
def test_what_is_no_token_id_has_no_prefix_in_memory(wrong: int) -> None:
    assert packed([1, wrong]) == packed(PackedPrompt([1, wrong])) == b""
