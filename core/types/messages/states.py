"""What an engine tells of itself: figures, KV memory, policies."""

from __future__ import annotations

import msgspec

__all__ = [
    "STATS_SECONDS",
    "KVGroupState",
    "KVSnapshot",
    "PinnedPrefix",
    "PinnedPrefixes",
    "PluginFigure",
    "PluginState",
    "PluginStates",
    "ProfileFiles",
    "SchedulerState",
    "Stats",
]


class PluginFigure(msgspec.Struct, frozen=True, array_like=True):
    """A number that a plugin shows."""

    plugin: str
    """What messages call the plugin: its kind, its name and its package."""
    name: str
    value: float
    counter: bool
    """True: a total since the start; False: a value of this moment."""


STATS_SECONDS = 0.25
"""The least time between two `Stats` of an engine."""


class Stats(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The state of the engine; sent at most a few times a second."""

    steps: int
    running: int
    waiting: int
    kv_capacity: int
    kv_free: int
    preemptions: int
    swap_outs: int
    """How many of the preemptions swapped what was computed out to host memory."""
    computed_tokens: int
    """Tokens run through the model so far; those computed again after a preemption count again."""
    output_tokens: int
    policy_faults: int
    slow_orders: int = 0
    """Orders of scheduling policies that took more than 5 ms."""
    counters: dict[str, float] = {}
    """Totals that decoding strategies keep, by name."""
    figures: list[PluginFigure] = []
    """The counters and gauges of plugins."""


class KVGroupState(msgspec.Struct, frozen=True, kw_only=True):
    """What layers of one rule have of a KV pool. Sizes are in positions of these layers alone."""

    window: int | None
    """How many positions a query of theirs sees; None: all."""
    held: int
    """Positions that sequences hold; shared ones count once."""
    cached: int
    """Positions that no sequence holds, and that one may attach to."""


class KVSnapshot(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The state of a KV pool. All sizes are in token positions, over all layers."""

    capacity: int
    """Positions of the whole pool."""
    free: int
    """Positions that could be reserved now: no sequence holds them, cached or not."""
    held: int
    """Positions that sequences hold; shared ones count once."""
    shared: int
    """Of those held, the ones held by two sequences or more."""
    computed: int
    """Of those held, the ones with a computed token; the rest is reserved ahead, or wasted in a last
    block."""
    cached: int
    """Of those free, the ones with computed tokens that a sequence may attach to."""
    passed: int = 0
    """Of those cached, the ones that windows have passed and no checkpoint needs: they are evicted first."""
    pinned: int
    """Of those cached or held, the ones that belong to a pinned prefix."""
    swap: int
    """Positions of swap memory, on the host."""
    swapped: int
    """Of those of swap memory, the ones in use."""
    lookups: int
    """Prompt tokens of admissions so far."""
    hits: int
    """Of those looked up, the ones found in memory."""
    evictions: int
    """Positions of cached memory evicted so far."""
    unit: int
    """Positions in one unit of `states`: the block size."""
    states: list[tuple[str, int]]
    """The pool from its start as runs of units: ``free``, ``cached``, ``held``, ``shared``. With `groups`, a
    unit is of one of them."""
    groups: list[KVGroupState] = []
    """Layers that are kept apart, because some have windows; empty: all are kept in full, together. A
    position over all layers is one of each group."""

    @property
    def hit_rate(self) -> float:
        """The share of the looked-up prompt tokens that were found; 0 before the first look-up."""
        return self.hits / self.lookups if self.lookups else 0.0

    @property
    def waste(self) -> float:
        """The share of the held positions without a computed token; 0 if none is held."""
        return 1 - self.computed / self.held if self.held else 0.0


class PinnedPrefix(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A pinned prefix."""

    name: str
    """The name that it was pinned by."""
    tokens: int
    """Tokens in whole blocks: those that are kept."""
    cached: int
    """Of those, the ones in memory now."""


class PinnedPrefixes(msgspec.Struct, frozen=True, tag=True):
    """All pinned prefixes, by name."""

    prefixes: list[PinnedPrefix]


class PluginState(msgspec.Struct, frozen=True, kw_only=True):
    """A registered policy, or a plugin that failed to load, as ``turnout plugins`` shows it."""

    kind: str
    """The kind of plugin, such as `scheduler`."""
    name: str
    """The name by which it is chosen."""
    plugin: str
    """The entry point or file that offers it."""
    distribution: str
    """The package that it is from."""
    version: str
    """The version of that package."""
    hook_api: int | None
    """The hook API version that it was written for, or null."""
    state: str
    """`ok`, `broken`, `duplicate` or `disabled`."""
    error: str = ""
    """Why it is not `ok`."""


class PluginStates(msgspec.Struct, frozen=True, tag=True):
    """The plugins of the engine's process."""

    plugins: list[PluginState]


class ProfileFiles(msgspec.Struct, frozen=True, tag=True):
    """What a profile has written; nothing yet where it has begun."""

    files: list[str]
    notes: list[str]
    """What is lacking, and why."""


class SchedulerState(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The scheduling policy and its state."""

    scheduler: str
    """The policy, written as for `--scheduler`."""
    policy_faults: int
    """Answers of policies that could not be carried out, so that requests were served in arrival order.
    Counted from the server's start, over all policies."""
    preemptions: int
    """Requests that lost their memory, counted likewise."""
    running: int
    """Requests that run; each prompt of a list is one."""
    waiting: int
    """Requests that wait."""
