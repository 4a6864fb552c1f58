"""A response encoded in slices has the same bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnout.server.http import json_slices
from turnout.server.http.json_slices import Chained, Lazily, encoded_pieces


class Leaf(msgspec.Struct):
    """An entry."""

    name: str
    numbers: list[int] | None = None


class Tree(msgspec.Struct, omit_defaults=True):
    """A body."""

    leaves: list[Leaf]
    one: Leaf | msgspec.UnsetType = msgspec.UNSET
    words: list[Any] = []


leaves = st.builds(Leaf, st.text(max_size=3), st.none() | st.lists(st.integers(-9, 9), max_size=9))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.builds(
        Tree,
        st.lists(leaves, max_size=9),
        st.just(msgspec.UNSET) | leaves,
        st.lists(st.none() | st.text(max_size=2) | st.dictionaries(st.text(max_size=1), leaves), max_size=9),
    )
)
def test_the_bytes_are_those_of_the_encoder(tree: Tree) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_slices, "SLICE", 3)
        assert b"".join(encoded_pieces(tree)) == msgspec.json.encode(tree)


def test_no_slice_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rendering 130 MB of log-probabilities held the event loop for 4.7 s."""
    longest = 0
    encode = msgspec.json.encode

    def measured(value: Any) -> bytes:
        nonlocal longest
        if isinstance(value, list):
            longest = max(longest, len(value))
        return encode(value)

    monkeypatch.setattr(msgspec.json, "encode", measured)
    for _ in encoded_pieces(Tree([Leaf("a", [1] * 5000)] * 5000, words=["a"] * 100_000)):
        pass
    assert longest == json_slices.SLICE


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=4))
def test_what_is_made_as_it_is_read_has_the_same_bytes(parts: list[list[int]]) -> None:
    everything = [number * 2 for part in parts for number in part]
    lazy = Chained(*(Lazily(part, lambda number: number * 2) for part in parts))
    assert list(lazy) == everything and len(lazy) == len(everything)
    assert [lazy[index] for index in range(-len(everything), len(everything))] == everything * 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_slices, "SLICE", 3)
        body = Tree([], words=["\0", *everything])
        tree = Tree([], words=Chained(["\0"], lazy))  # type: ignore[arg-type]  # no list, though it is like one
        assert b"".join(encoded_pieces(tree)) == msgspec.json.encode(body)


def test_no_more_than_a_slice_is_made_before_it_is_taken() -> None:
    made = 0

    def make(number: int) -> int:
        nonlocal made
        made += 1
        return number

    pieces = encoded_pieces(Tree([], words=Lazily(range(100_000), make)))  # type: ignore[arg-type]
    taken = [next(pieces) for _ in range(4)]
    assert made <= len(taken) * json_slices.SLICE
