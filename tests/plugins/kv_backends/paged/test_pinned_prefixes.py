"""Pinned prefixes are evicted last, and never in the way of a request."""

from __future__ import annotations

import pytest
from steps import compute, release, sequence
from toy import toy_kv

from turnout.core.errors import ConfigError
from turnout.core.types.messages import PinnedPrefix

SYSTEM = list(range(100, 108))
"""Two blocks of four."""


def serve(kv, tokens, salt: str = "") -> None:
    one = sequence(tokens, salt=salt)
    compute(kv, one)
    release(kv, one)


def crowd(kv, requests: int) -> None:
    """Other requests, each with three blocks of its own."""
    for number in range(requests):
        serve(kv, range(1000 + 100 * number, 1012 + 100 * number))


def test_a_pinned_prefix_outlives_what_was_used_after_it() -> None:
    kv = toy_kv(8, 4)
    serve(kv, [*SYSTEM, 1])
    assert kv.prefixes.pin("system", SYSTEM, "") == PinnedPrefix(name="system", tokens=8, cached=8)
    crowd(kv, 10)
    assert kv.cached(sequence([*SYSTEM, 2])) == 8
    assert kv.snapshot().pinned == 8


def test_without_the_pin_it_would_be_gone() -> None:
    kv = toy_kv(8, 4)
    serve(kv, [*SYSTEM, 1])
    crowd(kv, 10)
    assert kv.cached(sequence([*SYSTEM, 2])) == 0


def test_a_prefix_may_be_pinned_before_it_is_computed() -> None:
    kv = toy_kv(8, 4)
    assert kv.prefixes.pin("system", SYSTEM, "").cached == 0
    crowd(kv, 3)
    serve(kv, [*SYSTEM, 1])
    crowd(kv, 10)
    assert kv.prefixes.pinned() == [PinnedPrefix(name="system", tokens=8, cached=8)]


def test_a_prefix_that_a_sequence_holds_is_kept_when_it_leaves() -> None:
    kv = toy_kv(8, 4)
    holder = sequence([*SYSTEM, 1])
    compute(kv, holder)
    kv.prefixes.pin("system", SYSTEM, "")
    release(kv, holder)
    crowd(kv, 10)
    assert kv.cached(sequence([*SYSTEM, 2])) == 8


def test_a_running_request_gets_pinned_memory_when_nothing_else_is_left() -> None:
    kv = toy_kv(8, 4)
    kv.prefixes.pin("system", SYSTEM, "")
    serve(kv, [*SYSTEM, 1])
    assert kv.free == kv.capacity, "what is pinned and idle may be reserved"
    compute(kv, big := sequence(range(500, 528)))
    assert kv.prefixes.pinned()[0].cached == 4, "its end went, its start is left"
    release(kv, big)
    compute(kv, sequence(range(600, 632)))
    assert kv.prefixes.pinned()[0].cached == 0


def test_it_is_pinned_again_when_it_is_computed_again() -> None:
    kv = toy_kv(8, 4)
    kv.prefixes.pin("system", SYSTEM, "")
    serve(kv, range(600, 632))
    serve(kv, [*SYSTEM, 1])
    crowd(kv, 10)
    assert kv.prefixes.pinned()[0].cached == 8


def test_an_unpinned_prefix_is_evicted_like_others() -> None:
    kv = toy_kv(8, 4)
    kv.prefixes.pin("system", SYSTEM, "")
    serve(kv, [*SYSTEM, 1])
    assert kv.prefixes.unpin("system")
    assert not kv.prefixes.unpin("system")
    crowd(kv, 10)
    assert kv.prefixes.pinned() == [] and kv.cached(sequence([*SYSTEM, 2])) == 0


def test_what_two_pins_share_stays_until_both_are_gone() -> None:
    kv = toy_kv(8, 4)
    kv.prefixes.pin("short", SYSTEM[:4], "")
    kv.prefixes.pin("long", SYSTEM, "")
    serve(kv, [*SYSTEM, 1])
    kv.prefixes.unpin("long")
    crowd(kv, 10)
    assert kv.cached(sequence([*SYSTEM, 2])) == 4


def test_a_name_stands_for_the_last_prefix_that_was_given_it() -> None:
    kv = toy_kv(8, 4)
    kv.prefixes.pin("system", SYSTEM, "")
    serve(kv, [*SYSTEM, 1])
    other = [*range(200, 208)]
    kv.prefixes.pin("system", other, "")
    serve(kv, [*other, 1])
    crowd(kv, 10)
    assert kv.cached(sequence([*SYSTEM, 2])) == 0 and kv.cached(sequence([*other, 2])) == 8
    assert [pin.name for pin in kv.prefixes.pinned()] == ["system"]


def test_a_pin_is_for_requests_of_its_salt() -> None:
    kv = toy_kv(8, 4)
    kv.prefixes.pin("system", SYSTEM, "tenant a")
    serve(kv, [*SYSTEM, 1], salt="tenant a")
    serve(kv, [*SYSTEM, 1], salt="tenant b")
    crowd(kv, 10)
    assert kv.cached(sequence([*SYSTEM, 2], salt="tenant a")) == 8
    assert kv.cached(sequence([*SYSTEM, 2], salt="tenant b")) == 0


def test_only_whole_blocks_are_kept() -> None:
    kv = toy_kv(8, 4)
    assert kv.prefixes.pin("system", [*SYSTEM, 1, 2, 3], "").tokens == 8
    with pytest.raises(ConfigError, match="'short' has 3 tokens, less than one block of 4"):
        kv.prefixes.pin("short", SYSTEM[:3], "")


def test_pins_leave_a_block_to_work_with() -> None:
    kv = toy_kv(4, 4)
    kv.prefixes.pin("system", SYSTEM, "")
    with pytest.raises(ConfigError, match=r"needs 8 tokens.*16 together.*pool holds 16") as error:
        kv.prefixes.pin("other", range(8), "")
    assert "unpin another" in str(error.value)
    assert [pin.name for pin in kv.prefixes.pinned()] == ["system"]
    assert kv.prefixes.pin("longer", [*SYSTEM, 1, 2, 3, 4], "").tokens == 12, (
        "the first two blocks are shared"
    )
    assert kv.prefixes.pin("system", SYSTEM[:4], "").tokens == 4, "its former blocks make room for it"
