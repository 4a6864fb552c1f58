"""KV groups: layers of one rule, which share block tables, so that those with windows can forget.

A block has room for equally many layers in all groups, so that one pool serves all. A rule with more layers
than that has several groups; where the last one has fewer, part of its blocks lies idle. ::

    layers   0 1 2 3 4   5   6 7 8 9 10   11          (window of 1,024: 0-4 and 6-10; full: 5 and 11)
    groups   [5, 11]  [0, 1]  [2, 3]  [4, 6]  [7, 8]  [9, 10]

Integers only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec

__all__ = [
    "ONE_GROUP",
    "READ_TOGETHER",
    "KVGroup",
    "KVGroups",
    "described",
    "first_seen",
    "groups_of",
    "most_blocks",
]

READ_TOGETHER = 64
"""Attention reads a window from a multiple of so many positions on, and masks what is before the window."""
MOST_GROUPS = 8
"""Each group costs a step time of its own, for its block tables."""
CONTEXT = 32_768
"""Positions of the sequence that is to take little memory, if the model's context is as long."""


@dataclass(frozen=True)
class KVGroup:
    """Layers whose keys and values are kept for equally long, in one block table for each sequence."""

    window: int | None
    """How many positions a query of these layers sees at most; None: all."""
    layers: tuple[int, ...]
    """Their numbers; their order is that of a block. Layers that read the KV of others are not among them."""


@dataclass(frozen=True)
class KVGroups:
    """The groups of a model, one without a window first, if there is one."""

    groups: tuple[KVGroup, ...]
    height: int
    """How many layers' keys and values a block has room for."""
    table_of: tuple[int, ...]
    """By layer: the number of the group whose block tables it reads."""
    place_of: tuple[int, ...]
    """By layer: its place in a block, or that of the layer whose keys and values it reads."""

    @property
    def windows(self) -> tuple[int | None, ...]:
        return tuple(group.window for group in self.groups)

    def of_layers(self, first: int, count: int) -> KVGroups:
        """The same groups, with the places of so many layers from `first` on, which are numbered from 0.

        Block tables stay those of all layers; a block has room for these alone.
        """
        own = range(first, first + count)
        kept = [tuple(layer for layer in group.layers if layer in own) for group in self.groups]
        owners = [
            self.groups[self.table_of[layer]].layers[self.place_of[layer]] for layer in own
        ]  # of the keys and values that they read
        tables = self.table_of[first : own.stop]
        return KVGroups(
            tuple(
                KVGroup(group.window, tuple(layer - first for layer in layers))
                for group, layers in zip(self.groups, kept, strict=True)
            ),
            max(map(len, kept)),
            tables,
            tuple(kept[table].index(owner) for table, owner in zip(tables, owners, strict=True)),
        )


ONE_GROUP: tuple[int | None, ...] = (None,)
"""The windows of a model whose layers are all kept in full, in one group."""


def first_seen(position: int, window: int | None, block_size: int) -> int:
    """The index of the first block that a query at `position`, or a later one, reads.

    A sequence that goes on from `position` can do without the blocks before.
    """
    if window is None or position < window:
        return 0
    return (position + 1 - window) // READ_TOGETHER * READ_TOGETHER // block_size


def most_blocks(length: int, window: int | None, block_size: int, step: int | None) -> int:
    """The most blocks that a sequence of `length` tokens ever holds for layers of one group.

    step: the most positions that it computes at a time; None: all may be.
    """
    blocks = -(-length // block_size)
    if window is None or step is None:
        return blocks
    return min(blocks, (window + READ_TOGETHER + step) // block_size + 2)


def groups_of(spec: ModelSpec) -> KVGroups | None:
    """The groups of a model; None: no layer has a window, or layers differ in the shape of keys and values.

    All layers are then kept in full, in one group.
    """
    rules = spec.layer_attention()
    windows = _windows(rules, spec.max_positions)
    shapes = {_shape(rules[layer]) for layer in windows}
    if len(shapes) > 1 or set(windows.values()) <= {None}:
        return None
    by_window: dict[int | None, list[int]] = {}
    for layer, window in windows.items():
        by_window.setdefault(window, []).append(layer)
    height = _height(by_window, min(CONTEXT, spec.max_positions))
    groups = [
        KVGroup(window, tuple(by_window[window][first : first + height]))
        for window in sorted(by_window, key=lambda window: (window is not None, window))
        for first in range(0, len(by_window[window]), height)
    ]
    places = {
        layer: (number, place)
        for number, group in enumerate(groups)
        for place, layer in enumerate(group.layers)
    }
    found = [places[_owner(rules, layer)] for layer in range(len(rules))]
    return KVGroups(
        tuple(groups), height, tuple(table for table, _ in found), tuple(place for _, place in found)
    )


def described(spec: ModelSpec, groups: KVGroups | None, *, wanted: bool) -> list[str]:
    """Lines for the start-up summary: what layers keep. None where no layer has a window."""
    windows = _windows(spec.layer_attention(), spec.max_positions)
    if set(windows.values()) <= {None}:
        return []
    if groups is None:
        why = "their keys and values differ in shape" if wanted else "groups=false"
        return [f"layers keep all positions, also those with windows: {why}"]
    kept = Counter(windows.values())
    told = ", ".join(
        f"{count} keep {'all' if window is None else f'the last {window:,}'}"
        for window, count in kept.items()
    )
    return [f"KV memory in {len(groups.groups)} groups of {groups.height} layers: {told} positions"]


def _windows(rules: Sequence[LayerAttention], context: int) -> dict[int, int | None]:
    """For each layer with keys and values of its own how far back these are read, by others as well."""
    windows: dict[int, int | None] = {}
    for layer, rule in enumerate(rules):
        owner, window = _owner(rules, layer), rule.window
        if window is None or window >= context:
            windows[owner] = None
        elif owner not in windows:
            windows[owner] = window
        elif (known := windows[owner]) is not None:
            windows[owner] = max(known, window)
    return windows


def _owner(rules: Sequence[LayerAttention], layer: int) -> int:
    source = rules[layer].kv_from
    return layer if source is None else source


def _shape(rule: LayerAttention) -> tuple[int, int, int, bool]:
    return rule.kv_heads, rule.key_dim, rule.value_dim, rule.values_in_keys


def _height(by_window: dict[int | None, list[int]], context: int) -> int:
    """The layers of a group with which a long sequence takes least memory, in few groups."""

    def cost(height: int) -> tuple[bool, int, int]:
        groups = {window: -(-len(layers) // height) for window, layers in by_window.items()}
        seen = sum(
            count * min(context, context if window is None else window + 2 * READ_TOGETHER)
            for window, count in groups.items()
        )
        total = sum(groups.values())
        return total > max(MOST_GROUPS, len(groups)), seen * height, total

    return min(range(1, 1 + max(map(len, by_window.values()))), key=cost)
