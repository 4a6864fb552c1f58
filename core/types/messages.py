"""The messages between a server and its engine: plain data, encoded with msgspec.

A ``Command`` goes to the engine, an ``Event`` comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec

from turnout.core.types.block_events import AllBlocksCleared, BlockRemoved, BlockStored
from turnout.core.types.live.news import EngineNews
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.output_format import OutputFormat
from turnout.core.types.pooling import Pooled, PoolingFacts
from turnout.core.types.request import RequestSpec, Timing, Traced

__all__ = [
    "STATS_SECONDS",
    "Abort",
    "AdminCommand",
    "AnnouncePrefixes",
    "Command",
    "Delta",
    "Event",
    "Failed",
    "KVGroupState",
    "KVSnapshot",
    "ListPlugins",
    "ListPrefixes",
    "LoadProgress",
    "ModelFacts",
    "PinPrefix",
    "PinnedPrefix",
    "PinnedPrefixes",
    "PluginFigure",
    "PluginState",
    "PluginStates",
    "ProfileFiles",
    "PromptScores",
    "Ready",
    "Reply",
    "Reset",
    "SchedulerState",
    "SetScheduler",
    "ShowKV",
    "ShowScheduler",
    "Shutdown",
    "StartProfile",
    "Stats",
    "StopProfile",
    "Submit",
    "UnpinPrefix",
    "Watch",
]


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Asks to serve a request."""

    request: RequestSpec


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Asks to stop a request, or one of its choices. Unknown ones, which may just have ended, are ignored."""

    request_id: str
    index: int | None = None
    timing: bool = False
    """If this ends the whole request, or there is no such request, answer with a last delta that carries the
    `Timing`, if it is known."""


class AnnouncePrefixes(msgspec.Struct, frozen=True, tag=True):
    """Asks to send events from now on of the prefixes that are in memory; not answered."""


class Watch(msgspec.Struct, frozen=True, tag=True):
    """Asks to record what the engine does for so many seconds, and to send `EngineNews` with the `Stats`; not
    answered."""

    seconds: float
    anew: bool = False
    """Tell of all requests again."""


class _AdminCommandBase(msgspec.Struct, frozen=True, kw_only=True):
    """The id by which a `Reply` answers a command."""

    id: str = msgspec.field(default_factory=lambda: uuid4().hex)


class ShowScheduler(_AdminCommandBase, frozen=True, tag=True):
    """Asks for the scheduling policy and its state."""


class SetScheduler(_AdminCommandBase, frozen=True, tag=True):
    """Asks to use another scheduling policy from the next step on; requests stay in their queues."""

    spec: str
    """As for ``--scheduler``: ``NAME`` or ``NAME:option=value,…``."""


class ShowKV(_AdminCommandBase, frozen=True, tag=True):
    """Asks for the state of the KV pool."""

    states: bool = False
    """Whether to include the block map; if not, `KVSnapshot.states` is empty."""


class PinPrefix(_AdminCommandBase, frozen=True, tag=True):
    """Asks to pin a prefix, in place of the one of the same name."""

    name: str
    tokens: list[int]
    salt: str = ""


class UnpinPrefix(_AdminCommandBase, frozen=True, tag=True):
    """Asks to unpin a prefix."""

    name: str


class ListPrefixes(_AdminCommandBase, frozen=True, tag=True):
    """Asks for all pinned prefixes."""


class ListPlugins(_AdminCommandBase, frozen=True, tag=True):
    """Asks for all plugins that were found, failed ones included."""


class StartProfile(_AdminCommandBase, frozen=True, tag=True):
    """Asks to profile the engine's process."""

    folder: str
    """Where the profile is to be written."""


class StopProfile(_AdminCommandBase, frozen=True, tag=True):
    """Asks to end the profile, and to write it."""


AdminCommand = (
    ShowScheduler
    | SetScheduler
    | ShowKV
    | PinPrefix
    | UnpinPrefix
    | ListPrefixes
    | ListPlugins
    | StartProfile
    | StopProfile
)
"""Carried out between two steps; each is answered by a `Reply` of the same id."""


class Reset(msgspec.Struct, frozen=True, tag=True):
    """Asks to end all requests and to take back what admin commands changed, for another server; answered by
    `Ready`."""


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """Asks the engine to end after the current step."""


Command = Submit | Abort | AnnouncePrefixes | Watch | AdminCommand | Reset | Shutdown


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
    """Prompt tokens whose KV was found in memory, and not computed."""
    begun: tuple[float, float] | None = None
    """On a request's first delta: seconds that it waited to be admitted, and then until its first token."""
    cumulative_logprob: float | None = None
    """Over all tokens of a choice that is sent whole, under the model's own distribution."""
    score: float | None = None
    """What a choice that is sent whole was ranked by."""
    error: str = ""
    error_kind: str = ""
    """With ``error``: ``invalid`` (the request is at fault), ``overloaded``, ``timeout`` or ``internal``."""
    error_param: str | None = None
    retry_after: float = 1.0
    """With ``overloaded``: seconds after which the client should try again."""
    timing: Timing | None = None
    """On a request's last delta, if the request asked for it."""
    traced: Traced | None = None
    """Of a request that is traced, on its first delta and on its last."""
    pooled: Pooled | None = None
    """Of a request that pools, on its only delta."""
    prompt_logprobs: Sequence[TokenLogprobs] | None = None
    """On a request's first delta, if it asked for them: of the prompt from its second token on, or from where
    the `PromptScores` before it end."""


class PromptScores(msgspec.Struct, frozen=True, tag=True):
    """Part of a prompt's log-probabilities, which comes before the first delta: all in one message would take
    long to decode."""

    request_id: str
    scores: list[TokenLogprobs]


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


class Reply(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to an `AdminCommand`: an error, or a value."""

    id: str
    error: str = ""
    error_kind: str = ""
    """With ``error``: ``invalid`` (the command is at fault), ``missing`` (what it names does not exist),
    ``unsupported`` (by this engine), ``conflict`` (with what goes on) or ``internal``."""
    value: (
        SchedulerState | KVSnapshot | PinnedPrefix | PinnedPrefixes | PluginStates | ProfileFiles | None
    ) = None
    """None if the command returns nothing."""


class ModelFacts(msgspec.Struct, frozen=True):
    """What is known of a model; empty or 0: not known."""

    architecture: str = ""
    """As its configuration names it, such as ``Qwen2ForCausalLM``."""
    parameters: int = 0
    """How many it has, shared ones once."""
    weight_bytes: int = 0
    """Bytes that they take in memory."""
    weights: str = ""
    """How they are kept: the quantization, or else the dtype."""


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Says that the engine is assembled and waits for requests."""

    model: str
    max_model_len: int
    vocab_size: int
    defaults: dict[str, Any]
    """Sampling parameters for requests that do not set them, from the decoding strategy and the
    checkpoint."""
    kv: str
    """What the KV backend was built from, as ``NAME:option=value,…``."""
    kv_bytes_per_token: int
    """Bytes of a position of KV memory, over all layers."""
    host_memory: int = 0
    """Bytes of host memory that KV pools and swapped-out requests may take; memory that no token needs yet is
    not taken."""
    fingerprint: str = ""
    """The same for engines that give the same tokens for the same requests; empty: not known."""
    eos_token_ids: list[int] = []
    """The tokens that end a text."""
    output_format: OutputFormat | None = None
    """How the model writes reasoning and tool calls; None: not known."""
    facts: ModelFacts = ModelFacts()
    """What is told of the model itself."""
    pooling: PoolingFacts | None = None
    """What the engine makes of prompts of requests that generate nothing; None: it refuses them."""
    announces: bool = False
    """Whether the KV backend can tell which prefixes it keeps, and keeps some."""
    resumes: bool = False
    """Whether every request can go on in another engine: all decoding strategies on offer allow it."""
    cpu_kernels: str = ""
    """The kernels that were chosen for a CPU, as the option has them: ``native`` or ``torch``; else empty."""
    identity: dict[str, str] = {}
    """What engines that serve together must have in common, by what messages call it; empty: not known."""
    summary: list[str]
    """The chosen policies and the memory sums, a line each, as printed at start-up."""


class LoadProgress(msgspec.Struct, frozen=True, tag=True):
    """Says which part of its weights an engine that starts has loaded."""

    part: float
    """From 0 to 1."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Says that the engine could not start, or that it died."""

    message: str
    final: bool = False
    """No other engine is to be started: it would fail as well, or the configuration says so."""
    bad_config: bool = False
    """The configuration is at fault: a ConfigError, before the engine began to serve."""


Event = (
    Delta
    | PromptScores
    | Stats
    | EngineNews
    | LoadProgress
    | Ready
    | Failed
    | Reply
    | BlockStored
    | BlockRemoved
    | AllBlocksCleared
)
