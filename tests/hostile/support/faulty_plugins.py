"""Plugins of every kind that fail in a method of theirs, when they are told to, on the toy model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from turnout.core.engine.engine import Engine
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.engine.observers import Observers
from turnout.core.errors import RequestError
from turnout.core.interfaces.kv import PoolSize
from turnout.core.interfaces.logits_processor import LogitsProcessor
from turnout.core.interfaces.observers import Observer
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.plugin_faults import blamed, fault_message, name_plugin, plugin_errors
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.scheduling.preemption import Swap
from turnout.core.types.decision import Chosen
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.admissions.queue_time import QueueTime
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.sampling import Sampling
from turnout.plugins.decoding.speculation.strategy import Speculative
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.predictors.max_tokens import MaxTokens
from turnout.plugins.proposers.ngram import NGram
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.engine.streams.request_streams import RequestStreams
from turnout.testing.toy.engine import toy_engine
from turnout.testing.toy.resources import ToyResources
from turnout.testing.toy.runner import ToyRunner, as_tensor

__all__ = ["OTHERS", "OWN", "PACKAGE", "Fault", "Outcome", "build", "faulty", "requests", "serve", "title"]

PACKAGE = "turnout-theirs 1.0"
OWN = ("own-1", "own-2", "own-3")
"""The requests of the faulty strategy or processor."""
OTHERS = ("other-1", "other-2", "other-3")


def title(kind: str) -> str:
    return f"{kind} 'theirs' of {PACKAGE}"


@dataclass
class Fault:
    """Raises at some calls of one method: the first, the third, or all from the first on."""

    kind: str
    method: str
    moment: str
    error: Callable[[], BaseException]
    calls: int = 0

    def strike(self) -> None:
        self.calls += 1
        if self.moment == "always" or self.calls == {"first": 1, "third": 3}[self.moment]:
            raise self.error()


def faulty(base: type, method: str, fault: Fault) -> Any:
    """A class like `base`, whose `method`, perhaps a property or an attribute, strikes first."""
    original = getattr(base, method, None)
    kept = f"_kept_{method}"

    def call(self: Any, *given: Any, **named: Any) -> Any:
        fault.strike()
        if isinstance(original, property):
            return original.fget(self)  # type: ignore[misc]
        return getattr(self, kept) if original is None else original(self, *given, **named)

    call.__code__ = call.__code__.replace(co_name=method)
    member: Any = call
    if original is None or isinstance(original, property):
        member = property(call, lambda self, value: setattr(self, kept, value))
    return type(f"Faulty{base.__name__}", (base,), {method: member})


# ------------------------------------------------------------------ an engine of all kinds


class Asking(SchedulingPolicy):
    """Asks for all that a policy may ask for."""

    def order(self, view: Any) -> Any:
        yield from view.running
        for request in sorted(view.waiting, key=view.predict):
            view.fits(request)
            yield request


class Own(Greedy):
    """Serves what is greedy, as `Chosen` or not."""

    fault: Fault | None = None

    def decide(self, requests: Any, logits: Any) -> Any:
        chosen = super().decide(requests, logits)
        assert isinstance(chosen, Chosen)
        if self.fault is None or not self.fault.method.startswith("Chosen."):
            return chosen
        strike = self.fault.strike

        def read() -> list[int]:
            strike()
            return chosen.read()

        def details() -> Any:
            strike()
            return [None] * len(chosen.parents) if chosen.details is None else chosen.details()

        if self.fault.method == "Chosen.read":
            return Chosen(chosen.parents, chosen.tokens, read, chosen.details)
        return Chosen(chosen.parents, chosen.tokens, chosen.read, details)


class Drafting(Own):
    """Is asked to draft, so its tokens are read at once."""

    def draft(self, sequences: Any) -> Any:
        return ()


class Theirs(LogitsProcessor):
    """Adds to a token's logit for the requests that ask for it."""

    extra_args = ("theirs",)

    def wants(self, params: SamplingParams) -> bool:
        return "theirs" in params.extra_args

    def prepare(self, spec: RequestSpec) -> Callable[[], object] | None:
        return lambda: None

    def apply(self, logits: torch.Tensor, rows: Any) -> None:
        logits[:, 2] += 1


class Watching(Observer):
    """Hears of all that an observer may hear of."""

    def step_finished(self, step: Any) -> None:
        pass

    def request_arrived(self, request: Any) -> None:
        pass

    request_preempted = request_finished = request_arrived

    def engine_closed(self, engine: Any) -> None:
        pass


PARTS: dict[str, type] = {
    "scheduler": Asking,
    "length_predictor": MaxTokens,
    "admission": QueueTime,
    "kv_eviction": Lru,
    "kv": PagedCache,
    "proposer": NGram,
    "decoding": Own,
    "logits_processor": Theirs,
}


def requests(kind: str) -> list[RequestSpec]:
    """Those of the faulty plugin, and others; prompts that share prefixes, and choices that fork."""
    asked = {"theirs": 1} if kind == "logits_processor" else {}
    own = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True, extra_args=asked)
    other = SamplingParams(temperature=0.0 if kind == "proposer" else 1.0, max_tokens=9, ignore_eos=True, n=2)
    listed = [(name, own) for name in OWN] + [(name, other) for name in OTHERS]
    return [
        RequestSpec(id=name, prompt=[3, 1, 2, 3, 1, 2, 3, 1, place], params=params, seed=place)
        for place, (name, params) in enumerate(listed)
    ]


def build(kind: str, method: str, fault: Fault | None) -> Engine:
    """An engine around the toy model, in which the plugin of `kind` has the fault, or none has."""

    def make(part: str, *given: Any, **named: Any) -> Any:
        base, broken = PARTS[part], fault is not None and part == kind
        if base is Own and not method.startswith("Chosen."):
            base = Drafting
        if broken and not method.startswith("Chosen."):
            assert fault is not None
            base = faulty(base, method, fault)
        made = base(*given, **named)
        name_plugin(made, title(part))
        if broken and part == "decoding":
            made.fault = fault
        return made

    eviction = GuardedEviction(make("kv_eviction"))
    kv = make("kv", PoolSize(12 * 4, 40 * 4), 4, eviction)
    strategies = [Sampling(), make("decoding")]
    if kind == "proposer":
        strategies = [Speculative(proposer=make("proposer"), adaptive=False)]
    processors = LogitsProcessors([(title("logits_processor"), make("logits_processor"))])
    resources = ToyResources()
    for strategy in strategies:
        strategy.start(resources)
    processors.start(resources.model)
    engine = toy_engine(
        make("scheduler"),
        kv,
        budget=24,
        strict=False,
        preemption=Swap(),
        predictor=make("length_predictor"),
        observers=_observers(fault) if kind == "observer" else Observers(),
        processors=processors,
        admission=make("admission"),
        decodings=strategies,
        runner=ToyRunner(kv, values=as_tensor),
        overlaps=method.startswith("Chosen."),
    )
    engine.show_figures("kv_eviction", eviction.policy, eviction.policy.figures)
    for strategy in strategies:
        for part, plugin in strategy.parts:
            engine.show_figures(part, plugin, plugin.figures)
    if method == "why":
        engine.watch(0.0)
    return engine


def _observers(fault: Fault | None) -> Observers:
    observers = Observers()
    if fault is not None:
        made = faulty(Watching, fault.method, fault)()
        name_plugin(made, title("observer"))
        observers.choose(made)
    return observers


# ------------------------------------------------------------------ serving, as the server does


@dataclass
class Outcome:
    tokens: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)
    """What each engine said that died."""


def serve(make: Callable[[], Engine], specs: Iterable[RequestSpec], engines: int = 3) -> Outcome:
    """Serve the requests to their end; an engine that dies is replaced, and streams resume."""
    outcome, streams = Outcome(), RequestStreams()
    for spec in specs:
        streams.add(RequestStream(spec))
    for _ in range(engines):
        try:
            _live(make(), streams, outcome)
        except plugin_errors() as error:
            plugin = blamed(error)
            assert plugin is not None, "an engine died, and no plugin is to blame"
            outcome.deaths.append(fault_message(*plugin, error))
            streams.interrupt(fault=True, reason=outcome.deaths[-1])
        else:
            return outcome
    raise AssertionError(f"{engines} engines died: {outcome.deaths}")


def _live(engine: Engine, streams: RequestStreams, outcome: Outcome) -> None:
    _add(engine, streams.hand_over(), streams, outcome)
    for _ in range(1000):
        if not engine.busy:
            break
        for delta in engine.step():
            _take(delta, streams, outcome)
            _add(engine, streams.next_suspects(delta.request_id), streams, outcome)
        engine.stats()
    else:
        raise AssertionError("requests that never end")
    engine.stats()
    engine.close()


def _add(engine: Engine, specs: Iterable[RequestSpec], streams: RequestStreams, outcome: Outcome) -> None:
    for spec in specs:
        try:
            for work in engine.preparation(spec):
                work()
            engine.add(spec)
        except RequestError as error:
            _take(Delta(request_id=spec.id, error=str(error), error_kind="invalid"), streams, outcome)
            _add(engine, streams.next_suspects(spec.id), streams, outcome)


def _take(delta: Delta, streams: RequestStreams, outcome: Outcome) -> None:
    stream = streams.get(delta.request_id)
    assert stream is not None
    stream.deliver(delta)
    if delta.error:
        outcome.errors[delta.request_id] = delta.error
        outcome.tokens.pop(delta.request_id, None)
        return
    outcome.tokens[delta.request_id] = {index: list(tokens) for index, tokens in stream.outputs.items()}
