"""What an engine sends to its server: answers, how its start goes, and all the rest."""

from __future__ import annotations

from typing import Any

import msgspec

from turnout.core.types.block_events import AllBlocksCleared, BlockRemoved, BlockStored
from turnout.core.types.live.news import EngineNews
from turnout.core.types.messages.deltas import Delta, PromptScores
from turnout.core.types.messages.states import (
    KVSnapshot,
    PinnedPrefix,
    PinnedPrefixes,
    PluginStates,
    ProfileFiles,
    SchedulerState,
    Stats,
)
from turnout.core.types.output_format import OutputFormat
from turnout.core.types.pooling import PoolingFacts

__all__ = ["Event", "Failed", "LoadProgress", "ModelFacts", "Ready", "Reply"]


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
    ranks: int = 1
    """How many processes compute together: those of ``--tensor-parallel-size`` and
    ``--pipeline-parallel-size``."""
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
