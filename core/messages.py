"""What crosses between a server and its engine: plain data, encoded with msgspec.

``Command`` goes to the engine, ``Event`` comes back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnout.core.request import RequestSpec, Timing, TokenLogprobs

__all__ = [
    "Abort",
    "AdminCommand",
    "Command",
    "Delta",
    "Event",
    "Failed",
    "Ready",
    "Reply",
    "SchedulerState",
    "SetScheduler",
    "ShowScheduler",
    "Shutdown",
    "Stats",
    "Submit",
]


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Serve this request."""

    request: RequestSpec


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop a request, or one of its choices; unknown ones are ignored, they may just have finished."""

    request_id: str
    index: int | None = None
    timing: bool = False
    """Where this ends the whole request, answer with a last delta that carries its `Timing`."""


class ShowScheduler(msgspec.Struct, frozen=True, tag=True):
    """Which scheduling policy there is, and how it does."""

    id: str


class SetScheduler(msgspec.Struct, frozen=True, tag=True):
    """Ask this policy from the next step on; requests stay where they are."""

    id: str
    spec: str
    """As ``--scheduler`` has it: ``NAME`` or ``NAME:option=value,…``."""


AdminCommand = ShowScheduler | SetScheduler
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
    computed_tokens: int
    """Run through the model so far, again after preemption included."""
    output_tokens: int
    policy_faults: int


class SchedulerState(msgspec.Struct, frozen=True, kw_only=True):
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
    """With ``error``: ``invalid`` (the command's fault) or ``internal``."""
    value: SchedulerState | None = None


class Ready(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The engine is assembled and waits for requests."""

    model: str
    max_model_len: int
    vocab_size: int
    defaults: dict[str, Any]
    """Sampling parameters for requests that do not set them: the decoding's and the checkpoint's own."""
    summary: list[str]
    """The chosen policies and the memory sums, a line each, as printed at start-up."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not start, or died."""

    message: str
    final: bool = False
    """Another engine would do no better: what was asked for cannot work."""


Event = Delta | Stats | Ready | Failed | Reply
