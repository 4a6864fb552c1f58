"""What crosses between a server and its engine: plain data, encoded with msgspec.

``Command`` goes to the engine, ``Event`` comes back.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.request import RequestSpec, Timing

__all__ = [
    "Abort",
    "AdminCommand",
    "Command",
    "Delta",
    "Event",
    "Failed",
    "KVSnapshot",
    "ListPlugins",
    "ListPrefixes",
    "PinPrefix",
    "PinnedPrefix",
    "PinnedPrefixes",
    "PluginState",
    "PluginStates",
    "Ready",
    "Reply",
    "SchedulerState",
    "SetScheduler",
    "ShowKV",
    "ShowScheduler",
    "Shutdown",
    "Stats",
    "Submit",
    "UnpinPrefix",
]


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Serve this request."""

    request: RequestSpec


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop a request, or one of its choices; unknown ones are ignored, they may just have finished."""

    request_id: str
    index: int | None = None
    timing: bool = False
    """Where this ends the whole request, or there is none, answer with a last delta, which carries its
    `Timing` where one is known."""


class _Ordered(msgspec.Struct, frozen=True, kw_only=True):
    id: str = msgspec.field(default_factory=lambda: uuid4().hex)


class ShowScheduler(_Ordered, frozen=True, tag=True):
    """Which scheduling policy there is, and how it does."""


class SetScheduler(_Ordered, frozen=True, tag=True):
    """Ask this policy from the next step on; requests stay where they are."""

    spec: str
    """As ``--scheduler`` has it: ``NAME`` or ``NAME:option=value,…``."""


class ShowKV(_Ordered, frozen=True, tag=True):
    """How the KV pool stands."""

    states: bool = False
    """With its map; without, `KVSnapshot.states` comes empty."""


class PinPrefix(_Ordered, frozen=True, tag=True):
    """Keep this prefix, replacing the one of the same name."""

    name: str
    tokens: list[int]
    salt: str = ""


class UnpinPrefix(_Ordered, frozen=True, tag=True):
    """Keep it no longer."""

    name: str


class ListPrefixes(_Ordered, frozen=True, tag=True):
    """All that are pinned."""


class ListPlugins(_Ordered, frozen=True, tag=True):
    """All that were found, broken ones too."""


AdminCommand = ShowScheduler | SetScheduler | ShowKV | PinPrefix | UnpinPrefix | ListPrefixes | ListPlugins
"""Carried out between two steps; each is answered by a `Reply` of its id."""


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """Leave the loop after the current step."""


Command = Submit | Abort | AdminCommand | Shutdown


class Delta(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """New tokens of one choice of one request."""

    request_id: str
    index: int = 0
    tokens: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    """``stop``, ``length``, ``abort`` or ``error``; None while the choice goes on."""
    stop_token: int | None = None
    """The stop token that ended it."""
    cached_tokens: int = 0
    """Prompt tokens whose KV memory was found, not computed."""
    cumulative_logprob: float | None = None
    """Of all tokens of a choice that comes whole, of the model's own distribution."""
    score: float | None = None
    """What a choice that comes whole was ranked by."""
    error: str = ""
    error_kind: str = ""
    """With ``error``: ``invalid`` (the request's fault), ``overloaded``, ``timeout`` or ``internal``."""
    error_param: str | None = None
    timing: Timing | None = None
    """On a request's last delta, where it asked for it."""
    prompt_logprobs: list[TokenLogprobs] | None = None
    """On a request's first delta, where it asked for them: of the prompt from its second token on."""


class Stats(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """How the engine stands; sent at most a few times a second."""

    steps: int
    running: int
    waiting: int
    kv_capacity: int
    kv_free: int
    preemptions: int
    swap_outs: int
    """Of the preemptions, those that swapped what was computed out to host memory."""
    computed_tokens: int
    """Run through the model so far, again after preemption included."""
    output_tokens: int
    policy_faults: int
    slow_orders: int = 0
    """Answers of scheduling policies that took more than 5 ms."""
    counters: dict[str, float] = {}
    """Totals that decoding strategies keep, by name."""


class KVSnapshot(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """How a KV pool stands. All sizes are in token positions."""

    capacity: int
    """Of the whole pool."""
    free: int
    """Could be reserved now: what nobody holds, cached or not."""
    held: int
    """By sequences; what several share counts once."""
    shared: int
    """Of those held, by two sequences or more."""
    computed: int
    """Of those held, with a computed token in them; the rest is reserved ahead, or waste in a last block."""
    cached: int
    """Of those free, with tokens that somebody may attach to."""
    pinned: int
    """Of those cached or held, part of a pinned prefix."""
    swap: int
    """In host memory."""
    swapped: int
    """Of those in host memory, taken."""
    lookups: int
    """Prompt tokens of admissions so far."""
    hits: int
    """Of those looked up, found in memory."""
    evictions: int
    """Positions of cached memory given up so far."""
    unit: int
    """Positions that `states` counts at a time: the block size."""
    states: list[tuple[str, int]]
    """The pool from its start as runs of units: ``free``, ``cached``, ``held``, ``shared``."""

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens looked up that were found; 0 before the first."""
        return self.hits / self.lookups if self.lookups else 0.0

    @property
    def waste(self) -> float:
        """Share of the held memory that has no computed token in it; 0 where nothing is held."""
        return 1 - self.computed / self.held if self.held else 0.0


class PinnedPrefix(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A prefix to keep."""

    name: str
    """As whoever pinned it calls it."""
    tokens: int
    """Those that whole blocks hold: what is kept."""
    cached: int
    """Of those, in memory now."""


class PinnedPrefixes(msgspec.Struct, frozen=True, tag=True):
    """In order of their names."""

    prefixes: list[PinnedPrefix]


class PluginState(msgspec.Struct, frozen=True, kw_only=True):
    """A policy on offer, or a plugin that is not: as ``turnout plugins`` has it."""

    kind: str
    name: str
    plugin: str
    distribution: str
    version: str
    hook_api: int | None
    state: str
    error: str = ""


class PluginStates(msgspec.Struct, frozen=True, tag=True):
    """Of the engine's process."""

    plugins: list[PluginState]


class SchedulerState(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The scheduling policy, and how it does."""

    scheduler: str
    """What it was built from, as ``NAME:option=value,…``."""
    policy_faults: int
    """Answers of its that could not be carried out, and so of those before it."""
    preemptions: int
    running: int
    waiting: int


class Reply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to an `AdminCommand`: an error, or a value."""

    id: str
    error: str = ""
    error_kind: str = ""
    """With ``error``: ``invalid`` (the command's fault), ``missing`` (what it names is not there),
    ``unsupported`` (not by this engine) or ``internal``."""
    value: SchedulerState | KVSnapshot | PinnedPrefix | PinnedPrefixes | PluginStates | None = None
    """None where there is nothing to say but that it was done."""


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The engine is assembled and waits for requests."""

    model: str
    max_model_len: int
    vocab_size: int
    defaults: dict[str, Any]
    """Sampling parameters for requests that do not set them: the decoding's and the checkpoint's own."""
    kv: str
    """What the KV backend was built from, as ``NAME:option=value,…``."""
    kv_bytes_per_token: int
    """What a position of KV memory takes, over all layers."""
    host_memory: int = 0
    """Bytes of host memory that KV pools and swapped-out requests may come to take: what no token needs yet
    is not taken."""
    summary: list[str]
    """The chosen policies and the memory sums, a line each, as printed at start-up."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not start, or died."""

    message: str
    final: bool = False
    """Another engine would do no better: what was asked for cannot work."""
    asked_wrongly: bool = False
    """By the configuration: a ConfigError, before the engine began to serve."""


Event = Delta | Stats | Ready | Failed | Reply
