"""What a client asked for and when it happened: the parts of a request that go between processes."""

from __future__ import annotations

import msgspec

from turnout.core.types.pooling import PoolingParams
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["MAX_CHUNKS", "RequestSpec", "Resumption", "Timing", "Traced"]


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """Where to continue a request that another engine had begun.

    A token depends on the request's seed and its position alone, so the output continues as it would have.
    """

    choices: list[tuple[int, list[int]]]
    """The index and the output so far of each choice that has not ended; none of them: begin anew."""
    cached_tokens: int = 0
    """As the other engine reported it."""
    first_token: float | None = None
    """When the first token came, in seconds on the engines' common clock."""
    interrupted: list[float] = []
    """When engines were lost; each time counts as a preemption."""


class RequestSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client asked for, as plain data: this is sent to the engine."""

    id: str
    """As ``RequestView.id``."""
    prompt: list[int]
    """Token ids."""
    params: SamplingParams
    """How its tokens are chosen, and when they end."""
    seed: int
    """Always set, so that a request gives the same tokens wherever and however often it runs."""
    arrival: float | None = None
    """Seconds on the engine's clock; None: when the engine receives it."""
    priority: int = 0
    """Lower is more urgent, for policies that use it."""
    client: str = ""
    """Whose request this is, for policies that share between clients."""
    user: str = ""
    """Which of the client's users it is for; empty where the client names none."""
    session: str = ""
    """The client's name for the conversation, for routers; empty where the client names none."""
    origin: str = ""
    """What it came by, which no client can choose: a name for its key, or without keys its peer's address.
    Origins take turns at work that is done before a request is served."""
    deadline: float | None = None
    """Seconds after arrival by which it should be finished, for policies that use it."""
    ttft_deadline: float | None = None
    """Seconds after arrival by which its first token should be there."""
    timing: bool = False
    """Whether to report its `Timing` with the last delta."""
    cache_salt: str = ""
    """Only requests with the same salt share computed prefixes with it."""
    pooling: PoolingParams | None = None
    """Set if it generates nothing: its prompt is computed and pooled. Its `params` are not used then."""
    resume: Resumption | None = None
    """Set if an engine that is gone had admitted the request."""
    traced: bool = False
    """Whether to report its `Traced` with the first delta and with the last."""
    log_id: str = ""
    """What the log calls it: the client's `X-Request-Id`, or a name that the server gave the request."""


class Timing(msgspec.Struct, kw_only=True):
    """When things happened to a request, in seconds on the engine's clock."""

    arrival: float
    """When it arrived."""
    scheduled: float | None = None
    """When it was first admitted."""
    first_token: float | None = None
    """When its first token came; None if none has."""
    finished: float | None = None
    """When it ended."""
    preempted: list[float] = []
    """When it was preempted, each time."""
    resumed: list[float] = []
    """When it was admitted again, each time; the last may be missing."""
    chunks: list[tuple[float, int]] = []
    """Of a request that is traced: when each step had computed a part of its prompt, and how many tokens. The
    step of the last part, which gives the first token, is left out, and so are all beyond `MAX_CHUNKS`."""


class Traced(msgspec.Struct, kw_only=True):
    """What an engine tells of a request that is traced."""

    timing: Timing
    replica: str = ""
    """The engine's name among the replicas."""
    interruptions: int = 0
    """How many of the first preemptions were the loss of another engine."""


MAX_CHUNKS = 128
"""Of a request that is traced, so many are told."""
