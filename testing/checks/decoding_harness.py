"""Runs decoding strategies that need tensors on the toy model, whose logits are known for every context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.interfaces.decoding import Decoding
from turnout.core.registry.hookspecs import PROJECT
from turnout.core.registry.registry import Registry
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.logged_errors import assert_no_errors_logged
from turnout.testing.toy.engine import toy_engine
from turnout.testing.toy.resources import ToyResources
from turnout.testing.toy.runner import ToyRunner, as_tensor, toy_kv

__all__ = ["ChoiceOutput", "Outputs", "decoding_engine", "request", "run", "tokens_of"]

PROMPT = [3, 1, 2, 3, 1, 2, 3, 1]
"""It repeats itself, as text does, so that a proposer finds something to draft."""


@dataclass
class ChoiceOutput:
    tokens: list[int] = field(default_factory=list)
    details: list[TokenLogprobs] = field(default_factory=list)
    reason: str = ""


Outputs = dict[str, dict[int, ChoiceOutput]]
"""By request and choice."""


def request(name: str, params: SamplingParams, seed: int, *, prompt: Sequence[int] = PROMPT) -> RequestSpec:
    params = msgspec.structs.replace(params, seed=seed)
    return RequestSpec(id=name, prompt=list(prompt), params=params, seed=seed)


def decoding_engine(
    strategies: Sequence[Decoding],
    *,
    blocks: int = 2048,
    budget: int = 256,
    slots: int = 64,
    overlaps: bool = False,
) -> Engine:
    """An engine around the toy model in which all built-in logits processors are active."""
    resources = ToyResources(max_batched_tokens=budget)
    for strategy in strategies:
        strategy.start(resources)
    kv = toy_kv(blocks, 4)
    return toy_engine(
        Fcfs(),
        kv,
        budget=budget,
        slots=slots,
        observers=resources.observers,
        processors=_processors(),
        decodings=strategies,
        runner=ToyRunner(kv, values=as_tensor),
        waiting=10**6,
        overlaps=overlaps,
    )


@cache
def _processors() -> LogitsProcessors:
    # Not those of third parties that happen to be installed: they may need more than the toy has.
    ours = [entry for entry in Registry.load().entries() if entry.distribution == PROJECT]
    processors = LogitsProcessors(Registry(ours).logits_processors())
    processors.start(ToyResources().model)
    return processors


def run(engine: Engine, specs: Iterable[RequestSpec]) -> Outputs:
    """Serve the requests together. A strategy's fault fails, even one that the engine would survive."""
    with assert_no_errors_logged("turnout.core.engine.decoding_dispatch"):
        return _run(engine, specs)


def tokens_of(answers: Outputs) -> dict[tuple[str, int], tuple[int, ...]]:
    """By request and choice."""
    return {
        (name, index): tuple(answer.tokens)
        for name, choices in answers.items()
        for index, answer in choices.items()
    }


def _run(engine: Engine, specs: Iterable[RequestSpec]) -> Outputs:
    for spec in specs:
        engine.add(spec)
    answers: Outputs = {}
    for _ in range(20_000):
        if not engine.busy:
            return answers
        for delta in engine.step():
            _note(answers, delta)
    raise AssertionError(
        "not all requests had ended after 20,000 steps; the strategy must continue or end each in `decide`"
    )


def _note(answers: Outputs, delta: Delta) -> None:
    assert not delta.error, f"request {delta.request_id} ended with an error: {delta.error}"
    answer = answers.setdefault(delta.request_id, {}).setdefault(delta.index, ChoiceOutput())
    answer.tokens += delta.tokens
    answer.details += delta.logprobs or []
    answer.reason = delta.finish_reason or answer.reason
