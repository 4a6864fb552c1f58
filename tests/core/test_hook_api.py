"""What plugins build on is held against a recorded list, so that a break is deliberate.

Where this fails: a signature that plugins implement, or call, has changed. If that breaks plugins, raise
`HOOK_API_VERSION`. Then record the list anew::

    python tests/core/test_hook_api.py > tests/core/hook_api.txt
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import msgspec

import turnout
import turnout.testing as kit
from turnout.core import interfaces
from turnout.core.engine.logits_processing import adjust
from turnout.core.interfaces import (
    admission,
    eviction,
    launcher,
    logits_processor,
    observers,
    pooling,
    proposer,
    router,
)
from turnout.core.interfaces import scheduling as policy
from turnout.core.interfaces.observers import (
    ArrivalRecord,
    EngineRecord,
    PreemptionRecord,
    RequestRecord,
    StepRecord,
)
from turnout.core.interfaces.resources import Companion, Resources
from turnout.core.registry import hookspecs
from turnout.core.registry.hookspecs import HOOK_API_VERSION
from turnout.core.types import views as view
from turnout.core.types.decision import Choice, Chosen, Completion, Continuation, Retry
from turnout.core.types.messages import KVSnapshot, PinnedPrefix
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.output_format import (
    Calls,
    JsonCall,
    NamedCall,
    Notation,
    PythonCall,
    Region,
    XmlCall,
)
from turnout.core.types.placement import Placement
from turnout.core.types.plan import Chunk, Logits, Move, Plan
from turnout.core.types.pooling import PoolingParams, ScoreHead
from turnout.core.types.request import Request, RequestSpec, Sequence, Timing
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.decoder.decoder import Decoder
from turnout.models.families.base import read_spec
from turnout.plugins.decoding.candidates import continue_each
from turnout.plugins.evictions.greedy_dual import GreedyDual
from turnout.sampling.draws import draw
from turnout.testing.factories import made_request, made_row, made_view
from turnout.testing.toy.decodings import ToyBeam
from turnout.text.tokenizer import load_tokenizer

RECORD = Path(__file__).parent / "hook_api.txt"

IMPLEMENTED = [
    policy.SchedulingPolicy,
    policy.LengthPredictor,
    admission.AdmissionPolicy,
    interfaces.KVBackend,
    interfaces.KVCache,
    interfaces.PrefixPins,
    interfaces.AttentionBackend,
    eviction.EvictionPolicy,
    interfaces.Quantizer,
    interfaces.Adopter,
    interfaces.Exporter,
    interfaces.Decoding,
    proposer.Proposer,
    pooling.Pooling,
    logits_processor.LogitsProcessor,
    interfaces.ModelFamily,
    router.Router,
    launcher.Launcher,
    launcher.LaunchedEngine,
    observers.Observer,
]
"""By plugins."""
GIVEN = [
    view.View,
    view.RequestView,
    view.KVView,
    policy.Share,
    policy.Drop,
    admission.Load,
    admission.Refusal,
    eviction.CachedBlock,
    interfaces.Span,
    interfaces.PoolSize,
    interfaces.ExportedLayer,
    interfaces.ComputeContext,
    router.Routable,
    router.Replica,
    launcher.EngineOrder,
    launcher.EngineAddress,
    launcher.ChannelKeys,
    launcher.Death,
    proposer.DraftRequest,
    proposer.Proposal,
    logits_processor.Row,
    logits_processor.ServedModel,
    Resources,
    Companion,
    ModelSpec,
    Placement,
    Timing,
    Continuation,
    Completion,
    Retry,
    Choice,
    Chosen,
    Chunk,
    Plan,
    Logits,
    Move,
    Sequence,
    KVSnapshot,
    PinnedPrefix,
    StepRecord,
    ArrivalRecord,
    PreemptionRecord,
    RequestRecord,
    EngineRecord,
    SamplingParams,
    PoolingParams,
    ScoreHead,
    RequestSpec,
    Region,
    Calls,
    JsonCall,
    NamedCall,
    PythonCall,
    XmlCall,
    Notation,
]
"""To plugins, or by them, to read and to build."""

OF_REQUESTS = ["fault", "id", "live", "output_tokens", "params", "prompt", "spec", "state"]
"""Requests have more, which is the engine's."""

HELPERS = [
    adjust,
    continue_each,
    draw,
    load_tokenizer,
    read_spec,
    Decoder,
    GreedyDual.worth,
    router.rendezvous,
    made_request,
    made_row,
    made_view,
]
"""That plugins may call, or that the complete examples in docs/reference/plugins do."""


def api() -> Iterator[str]:
    """A line for each name that plugins rely on."""
    yield f"version {HOOK_API_VERSION}"
    for name, hook in vars(hookspecs).items():
        if hasattr(hook, "turnout_spec"):
            yield f"hook {name}{signature(hook)}"
    for base in IMPLEMENTED:
        yield from implemented(base)
    for kind in GIVEN:
        yield from (f"given {kind.__name__}.{name}" for name in sorted(fields(kind)))
    yield from (f"given Request.{name}" for name in OF_REQUESTS)
    for helper in HELPERS:
        yield f"helper {helper.__module__}.{helper.__qualname__}{signature(helper)}"
    yield from (f"exported turnout.{name}" for name in sorted(turnout.__all__))
    for name in sorted(kit.__all__):
        claims = vars(getattr(kit, name)).get("__annotations__", {})
        yield from (f"suite {name}.{claim}" for claim in sorted(claims))
        yield f"suite {name}"


def implemented(base: type) -> Iterator[str]:
    for owner in reversed(base.__mro__):
        if owner.__module__.startswith("turnout."):
            for name, member in sorted(vars(owner).items()):
                function = member.fget if isinstance(member, property) else member
                if (not name.startswith("_") or name == "__call__") and inspect.isfunction(function):
                    abstract = " abstract" if getattr(member, "__isabstractmethod__", False) else ""
                    kind = "property" if isinstance(member, property) else "method"
                    yield f"{kind} {base.__name__}.{name}{signature(function)}{abstract}"
            for name, annotation in sorted(vars(owner).get("__annotations__", {}).items()):
                yield f"attribute {base.__name__}.{name}: {annotation}"


def fields(kind: type) -> set[str]:
    if issubclass(kind, msgspec.Struct):
        members = {name for name, member in vars(kind).items() if isinstance(member, property | FunctionType)}
        return {name for name in {*kind.__struct_fields__, *members} if not name.startswith("_")}
    named = set(getattr(kind, "_fields", ())) | set(getattr(kind, "__annotations__", {}))
    members = {name for owner in kind.__mro__[:-1] for name in vars(owner)} if not named else set(vars(kind))
    return {name for name in named | members if not name.startswith("_")} - {"count", "index"} | (
        {"index"} if "index" in named else set()
    )


def signature(function: object) -> str:
    """As it stands in the source."""
    return str(inspect.signature(function)).replace("'", "")  # type: ignore[arg-type]


def test_the_signatures_are_those_recorded() -> None:
    recorded, now = RECORD.read_text().splitlines(), list(api())
    gone = [line for line in recorded if line not in now]
    new = [line for line in now if line not in recorded]
    assert not gone and not new, f"gone: {gone}; new: {new}. {__doc__}"


def test_requests_have_what_is_promised() -> None:
    spec = RequestSpec(id="r", prompt=[1], params=SamplingParams(), seed=0)
    request = Request(spec, ToyBeam(), 0.0, 9, frozenset())
    assert all(hasattr(request, name) for name in OF_REQUESTS)


def test_the_list_is_long() -> None:
    assert len(list(api())) > 200


if __name__ == "__main__":
    sys.stdout.write("\n".join(api()) + "\n")
