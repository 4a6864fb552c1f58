"""What several engines answer is one answer, also where a rollout has changed some of them."""

from __future__ import annotations

from typing import Any

from turnout.core.types.messages import (
    KVGroupState,
    KVSnapshot,
    PinnedPrefix,
    PinnedPrefixes,
    ProfileFiles,
    Reply,
)
from turnout.server.fleet.totals import merged_reply


def merged(*values: Any) -> Any:
    return merged_reply([Reply(id="r", value=value) for value in values]).value


def pool(*groups: KVGroupState, unit: int = 16, held: int = 32, cached: int = 16) -> KVSnapshot:
    sizes = dict.fromkeys(["free", "shared", "computed", "pinned", "swap", "swapped", "lookups"], 1)
    return KVSnapshot(
        **sizes,
        capacity=100,
        held=held,
        cached=cached,
        hits=0,
        evictions=0,
        unit=unit,
        states=[("held", held // unit), ("cached", cached // unit)],
        groups=list(groups),
    )


def group(window: int | None, held: int, cached: int = 0) -> KVGroupState:
    return KVGroupState(window=window, held=held, cached=cached)


def test_groups_of_one_window_are_added_up_and_others_are_kept() -> None:
    """An engine whose pool has other groups made the answer an internal error."""
    one, other = pool(group(None, 5), group(128, 2)), pool(group(128, 4), group(None, 1), group(64, 7))
    assert merged(one, one).groups == [group(None, 10), group(128, 4)]
    assert merged(one, other).groups == [group(None, 6), group(128, 6), group(64, 7)]


def test_a_pool_without_groups_is_one_of_full_layers() -> None:
    assert merged(pool(), pool()).groups == []
    assert merged(pool(), pool(group(None, 5), group(128, 2))).groups == [group(None, 37, 16), group(128, 2)]


def test_maps_of_blocks_of_other_sizes_have_a_unit_in_common() -> None:
    """Runs of small blocks were drawn as if their blocks were as large as the first engine's."""
    found = merged(pool(unit=16), pool(unit=8), pool(unit=16))
    assert found.unit == 8 and found.capacity == 300
    assert found.states == [("held", 4), ("cached", 2)] * 3


def test_a_prefix_counts_as_far_as_every_engine_has_it() -> None:
    """One that the first engine had not pinned was left out, and one that another lacked counted in full."""

    def prefixes(**cached: int) -> PinnedPrefixes:
        return PinnedPrefixes(
            [PinnedPrefix(name=name, tokens=64, cached=count) for name, count in cached.items()]
        )

    one, other = prefixes(a=64, b=32), prefixes(b=16, c=64)
    found = {prefix.name: prefix.cached for prefix in merged(one, other, one).prefixes}
    assert found == {"a": 0, "b": 16, "c": 0}


def test_an_answer_of_one_engine_stands_beside_none_of_another() -> None:
    assert merged(None, pool()) == merged(pool(), None) == pool()


def test_an_engine_that_is_not_profiled_is_named_once() -> None:
    replies = [Reply(id="r", value=ProfileFiles(["a"], [])), Reply(id="r", error="no", error_kind="invalid")]
    assert merged_reply(replies).value == ProfileFiles(["a"], ["one engine is left out: no"])
