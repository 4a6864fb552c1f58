"""Events of KV blocks that make no sense, as a KV backend or another machine's engine may send them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core import limits
from turnout.core.engine.prefix_index import PrefixIndex
from turnout.core.interfaces.router import Routable
from turnout.core.types.block_events import AllBlocksCleared, BlockEvent, BlockRemoved, BlockStored
from turnout.core.types.messages import Event

PROMPT = list(range(64))
NUMBERS = st.one_of(st.integers(-5, 300), st.sampled_from([-(2**63), 2**31, 2**32, 2**63 - 1]))
NAMES = st.one_of(st.sampled_from([b"", b"a", b"b"]), st.binary(max_size=3))
EVENTS = st.one_of(
    st.builds(
        BlockStored,
        NAMES,
        st.one_of(st.none(), NAMES),
        st.lists(NUMBERS, max_size=8),
        NUMBERS,
        st.text(max_size=2),
    ),
    st.builds(BlockRemoved, st.lists(NAMES, max_size=3)),
    st.just(AllBlocksCleared()),
)


def routable(prompt: list[int], salt: str = "") -> Routable:
    return Routable("r", prompt, 1, cache_salt=salt)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("ab"), EVENTS), max_size=12), st.lists(NUMBERS, max_size=40))
def test_an_index_takes_any_and_says_no_more_than_a_prompt_has(
    told: list[tuple[str, BlockEvent]], prompt: list[int]
) -> None:
    index = PrefixIndex()
    for engine, event in told:
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode([event]), type=list[Event])
        index.note(engine, [each for each in sent if isinstance(each, BlockEvent)])
        for asked in (prompt, PROMPT):
            found = index.find(routable(list(asked)))
            assert all(0 <= length <= len(asked) for length in found.values())


@pytest.mark.parametrize("size", [0, -1, -(2**63)])
def test_blocks_of_no_tokens_are_left_out(size: int) -> None:
    """Marks that never advance would hold the server's event loop for ever."""
    index = PrefixIndex()
    index.note("a", [BlockStored(b"a", None, PROMPT[:16], 16)])
    index.note("b", [BlockStored(b"b", None, PROMPT[:16], size)])
    assert index.find(routable(PROMPT)) == {"a": 16}


def test_a_flood_is_kept_within_its_bound() -> None:
    index = PrefixIndex()
    for number in range(limits.PREFIX_MARKS.whole + 1000):
        index.note("a", [BlockStored(b"%d" % number, None, [number], 1)])
    assert len(index._keys["a"]) == limits.PREFIX_MARKS.whole
    index.forget("a")
    assert not index._holders


def test_a_circle_of_parents_ends() -> None:
    index = PrefixIndex()
    for _ in range(3):
        for block, parent in ((b"a", None), (b"b", b"a"), (b"a", b"b"), (b"b", b"b")):
            index.note("a", [BlockStored(block, parent, PROMPT[:16], 16)])
    found = index.find(routable(PROMPT))
    assert all(length <= len(PROMPT) for length in found.values())
