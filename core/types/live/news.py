"""What an engine tells of its requests and steps while it is watched.

All times are in seconds since the epoch. Prompts and outputs are never part of it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "Breadth",
    "EngineNews",
    "Grant",
    "LiveKV",
    "LiveRequest",
    "LiveStats",
    "Phase",
    "Progress",
    "SpanNews",
    "StepTrace",
]

Phase = Literal["waiting", "prefill", "decode", "preempted", "swapped", "ended"]
"""What a request is about. ``preempted``: it waits to be computed again; ``swapped``: it waits, and what it
had computed is in host memory."""


class LiveRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A request, as watchers see it."""

    id: str
    """As in its answers."""
    client: str = ""
    """Whose it is."""
    priority: int = 0
    """As the client gave it."""
    prompt_tokens: int = 0
    """The length of the prompt."""
    max_tokens: int = 0
    """Output tokens of one choice, at most."""
    n: int = 0
    """Choices that it wants, where those are more than one."""
    arrival: float
    """When it arrived."""
    state: Phase
    """`waiting`, `prefill`, `decode`, `preempted`, `swapped` or `ended`."""
    computed: int = 0
    """Tokens whose KV is in memory, over all its sequences."""
    cached_tokens: int = 0
    """Prompt tokens that were cached when it was first admitted."""
    output_tokens: int = 0
    """Tokens produced so far, over all choices."""
    preemptions: int = 0
    """How often it was preempted."""
    finish_reason: str = ""
    """``stop``, ``length``, ``abort``, ``error``, or ``moved``: it goes on in another engine."""
    resumed: bool = False
    """It had begun in another engine, or in one that died."""
    moved_from: str = ""
    """The name of the engine that served it before."""


Progress = tuple[str, Phase, int, int, int]
"""A request's id, and what changed of it: its state, `computed`, `output_tokens` and `preemptions`."""
SpanNews = tuple[str, Phase, float, float | None]
"""A request's id, a phase, when it began, and when it ended; None: it goes on."""
Breadth = tuple[str, float, int]
"""A request's id, and since when how many of its sequences run: choices that have not ended, or beams."""
Grant = tuple[str, int, Literal["prefill", "decode"], int, int]
"""A request's id, the tokens that it computes in a step and as what, how many are computed after the step,
and how many there are."""


class StepTrace(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A step of an engine: what its policy decided, and what came of it."""

    number: int
    """Which step of the engine it is."""
    started: float
    """When it began."""
    ended: float = 0.0
    """When it ended."""
    policy_ms: float = 0.0
    """Milliseconds that the scheduling policy took for its order."""
    tokens: int = 0
    """Tokens run through the model."""
    rows: int = 0
    """Rows of logits."""
    running: int = 0
    """How many requests run, after the step."""
    waiting: int = 0
    """How many requests wait, after the step."""
    kv_free: int = 0
    """Free token positions of the KV pool, after the step."""
    order: list[str] | None = None
    """The first of the requests that wait, as the policy ordered them; None: not recorded."""
    grants: list[Grant] = []
    """What requests compute, those that need more than their next token first: id, tokens, `prefill` or
    `decode`, how many are computed then, and of how many."""
    again: bool = False
    """The order and those that decode are as in the step before; each is a token further."""
    admitted: list[str] = []
    """Those that waited until now."""
    preempted: list[tuple[str, Literal["swap", "recompute"]]] = []
    """Those that had to give way, and what becomes of what they had computed: `swap` or `recompute`."""
    evicted: int = 0
    """Token positions of cached memory that were evicted."""
    moved: dict[str, int] = {}
    """Token positions that were copied: ``copy``, ``swap_out`` and ``swap_in``."""
    thin: bool = False
    """There were many steps: order, grants and words were not recorded for this one."""
    why: dict[str, str] = {}
    """What the policy says of requests."""


class LiveStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers of an engine, as in `Stats`."""

    steps: int = 0
    running: int = 0
    waiting: int = 0
    kv_capacity: int = 0
    kv_free: int = 0
    preemptions: int = 0
    swap_outs: int = 0
    computed_tokens: int = 0
    output_tokens: int = 0
    policy_faults: int = 0


class LiveKV(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The KV pool, in token positions, as in `KVSnapshot`."""

    unit: int
    """Positions of a block."""
    capacity: int
    free: int
    held: int
    shared: int = 0
    cached: int = 0
    pinned: int = 0
    swap: int = 0
    swapped: int = 0
    hit_rate: float = 0.0
    evictions: int = 0
    cell: int = 1
    """Blocks that a cell of `runs` stands for."""
    runs: list[tuple[str, int]] = []
    """The pool from its start, as runs of cells."""
    groups: list[Any] = []
    """As `KVSnapshot.groups`."""
    holders: list[str] = []
    """The ids of requests that hold memory."""
    pins: list[str] = []
    """The names of pinned prefixes."""
    owners: list[tuple[int, int, int]] = []
    """Whose the cells are, from the pool's start: the number of a holder, from 1; or of a pinned prefix that
    no sequence holds, from -1 down; or 0. Then how many sequences use them, and how many cells there are.
    Empty: not known."""


class EngineNews(msgspec.Struct, tag=True, kw_only=True, omit_defaults=True):
    """What happened in an engine since it told the last time."""

    at: float
    began: bool = False
    """The first news: all its requests are in it."""
    scheduler: str = ""
    """The policy, as `--scheduler` writes it."""
    stats: LiveStats = LiveStats()
    requests: list[LiveRequest] = []
    """Those that are new, have ended, or have changed in more than their progress."""
    progress: list[Progress] = []
    spans: list[SpanNews] = []
    breadths: list[Breadth] = []
    """Of requests with several sequences."""
    steps: list[StepTrace] = []
    kv: LiveKV | None = None
