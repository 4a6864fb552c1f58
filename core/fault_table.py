"""What a fault of a plugin costs: for each kind and method, what ends, and what goes on instead.

A fault is an exception, or an answer that cannot be used. The guards in `core` look up here what they do, a
test raises in each method of each kind, and docs/reference/plugins/faults.md is written from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["FAULTS", "Ends", "Fault", "fault_of"]


class Ends(Enum):
    """What ends with a fault, as documents say it."""

    NOTHING = "nothing"
    ARRIVING = "the request that arrives: 400"
    REQUEST = "the request at which it failed: 500"
    PROCESSED = "the requests of those rows: 500"
    TOGETHER = "the requests that it decided on together: 500"
    ENGINE = "the engine, which is replaced"
    START = "the start; a replacement of an engine is tried again"
    COMMAND = "the command"


@dataclass(frozen=True)
class Fault:
    """A row of the table: methods of a kind whose faults have the same consequence."""

    kind: str
    """As `KINDS` names it."""
    methods: tuple[str, ...]
    ends: Ends
    instead: str
    """What goes on, as a clause that follows "; " in a message."""

    @property
    def in_service(self) -> bool:
        """Whether the method is called while requests are served."""
        return self.ends not in (Ends.START, Ends.COMMAND)

    @property
    def replaces_engine(self) -> bool:
        """Whether another engine takes over, where every stream resumes that can."""
        return self.ends is Ends.ENGINE


_RESUMES = "another engine takes over, and requests go on after their last token"
_NOT_STARTED = "the engine does not start"

_UNSEEN = "its counters and gauges are left out of /metrics"

FAULTS = (
    Fault("scheduler", ("order",), Ends.NOTHING, "the rest of the step is served in arrival order"),
    Fault("scheduler", ("victim",), Ends.NOTHING, "the newest admission gives way"),
    Fault("scheduler", ("check",), Ends.NOTHING, "the request is served"),
    Fault("scheduler", ("observe",), Ends.NOTHING, "requests go on all the same"),
    Fault("scheduler", ("why",), Ends.NOTHING, "those who watch see nothing of what it has to say"),
    Fault("scheduler", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault("length_predictor", ("predict",), Ends.NOTHING, "the client's own max_tokens is predicted"),
    Fault("length_predictor", ("observe",), Ends.NOTHING, "requests go on all the same"),
    Fault("length_predictor", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault("admission", ("admit",), Ends.NOTHING, "the request is taken on"),
    Fault("admission", ("observe",), Ends.NOTHING, "requests go on all the same"),
    Fault("admission", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault(
        "kv_eviction",
        ("add", "remove", "pop"),
        Ends.NOTHING,
        "from now on the block that was released longest ago is evicted",
    ),
    Fault("kv_eviction", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault("proposer", ("propose", "backlog"), Ends.NOTHING, "no tokens are drafted for this step"),
    Fault("proposer", ("forget",), Ends.NOTHING, "requests go on all the same"),
    Fault("proposer", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault("proposer", ("start", "cost"), Ends.START, _NOT_STARTED),
    Fault(
        "decoding",
        ("accepts", "width"),
        Ends.ARRIVING,
        "a strategy that the configuration does not name is passed over, and costs no request",
    ),
    Fault("decoding", ("check",), Ends.ARRIVING, "the other requests go on"),
    Fault("decoding", ("draft",), Ends.NOTHING, "no tokens are drafted for this step"),
    Fault(
        "decoding",
        ("decide",),
        Ends.REQUEST,
        "each request is asked about again, alone, so that only those end at which it fails again",
    ),
    Fault(
        "decoding",
        ("Chosen.read", "Chosen.details"),
        Ends.TOGETHER,
        "the other requests go on; where steps do not overlap, each is asked about again, alone",
    ),
    Fault("decoding", ("forget", "counters"), Ends.NOTHING, "requests go on all the same"),
    Fault("decoding", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault("decoding", ("start", "rows", "defaults", "parts"), Ends.START, _NOT_STARTED),
    Fault("pooling", ("fold", "vectors"), Ends.REQUEST, "the other requests go on"),
    Fault(
        "logits_processor",
        ("wants",),
        Ends.ARRIVING,
        "a request without any of the processor's extra_args goes on without it, if it declares some",
    ),
    Fault("logits_processor", ("warm_up",), Ends.NOTHING, "requests go on all the same"),
    Fault("logits_processor", ("prepare", "check"), Ends.ARRIVING, "the other requests go on"),
    Fault("logits_processor", ("apply",), Ends.PROCESSED, "the other requests go on"),
    Fault("logits_processor", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault("logits_processor", ("start",), Ends.START, _NOT_STARTED),
    Fault(
        "observer",
        ("step_finished", "request_arrived", "request_preempted", "request_finished", "engine_closed"),
        Ends.NOTHING,
        "it is not called again",
    ),
    Fault("observer", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault(
        "kv",
        (
            *("free", "capacity", "cached", "swappable", "holds", "fits"),
            *("reserve", "commit", "fork", "release", "drain"),
            *("move", "bind", "__call__"),
        ),
        Ends.ENGINE,
        _RESUMES,
    ),
    Fault(
        "kv",
        ("snapshot", "prefixes", "pin", "unpin", "pinned"),
        Ends.NOTHING,
        "the request to /admin or /metrics that needs it gets an error",
    ),
    Fault("kv", ("figures",), Ends.NOTHING, _UNSEEN),
    Fault(
        "kv", ("for_model", "bytes_per_token", "positions", "cache", "attention"), Ends.START, _NOT_STARTED
    ),
    Fault("quantization", ("forward",), Ends.ENGINE, _RESUMES),
    Fault(
        "quantization",
        ("wants", "convert_named", "convert", "wants_embedding", "convert_embedding", "adopter", "adopt"),
        Ends.START,
        _NOT_STARTED,
    ),
    Fault("quantization", ("exporter", "export", "config"), Ends.COMMAND, "layers that are written are kept"),
    Fault("model", ("forward", "logits"), Ends.ENGINE, _RESUMES),
    Fault("model", ("spec", "parameter_count", "build", "division", "rename"), Ends.START, _NOT_STARTED),
    Fault("router", ("route",), Ends.NOTHING, "the request goes to the replica that has the fewest"),
    Fault("launcher", ("expect", "launch", "configure"), Ends.START, _NOT_STARTED),
    Fault("launcher", ("connected", "kill", "close"), Ends.NOTHING, "the server goes on"),
    Fault("format", ("found_by",), Ends.START, _NOT_STARTED),
)
"""Every method of every kind."""

_BY_METHOD = {(fault.kind, method): fault for fault in FAULTS for method in fault.methods}


def fault_of(kind: str, method: str) -> Fault:
    """Returns what a fault of a method costs. Raises KeyError for a method that no row has."""
    return _BY_METHOD[kind, method]
