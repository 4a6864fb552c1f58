"""The features that docs/reference/compatibility.md combines: how each is switched on, and how it shows.

Most checks ask the plain engine, one request at a time, what should have come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from turnout import LLM, SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.llm import CompletionOutput, RequestOutput

LENGTH = 14
PATTERN = r"[a-d]{9}"
FORM = StructuredOutputs(regex=PATTERN)
WORD, BIASED = "(", 10
"""A word, and its token, which `logit_bias` makes likely; `bad_words` forbids it all the same."""


class Events(NamedTuple):
    """How often an engine did what is not seen in tokens."""

    preemptions: int
    swap_outs: int
    drafted: int
    """Drafts, and tokens in them."""

    @classmethod
    def of(cls, stats: Any) -> Events:
        drafted = sum(value for name, value in stats.counters.items() if "draft" in name)
        return cls(stats.preemptions, stats.swap_outs, drafted)

    def since(self, before: Events) -> Events:
        return Events(*(now - then for now, then in zip(self, before, strict=True)))


@dataclass(frozen=True)
class Served:
    """What an engine made of some prompts."""

    params: SamplingParams
    answers: list[RequestOutput]
    pieces: dict[tuple[str, int], int]
    """Deltas with tokens that came, by request and choice."""
    events: Events
    """What it took."""
    plain: LLM
    """An engine with the same weights and nothing switched on."""
    tolerance: float
    """Of log-probabilities beside the plain engine's."""

    @property
    def choices(self) -> list[tuple[RequestOutput, CompletionOutput]]:
        return [(answer, choice) for answer in self.answers for choice in answer.outputs]

    def logprobs(self, tokens: list[int]) -> list[float]:
        """The plain engine's, of each token but the first."""
        scoring = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
        (scored,) = self.plain.generate([tokens], scoring, progress=False)
        entries = (scored.prompt_logprobs or [None])[1:]
        return [entry[token].logprob for entry, token in zip(entries, tokens[1:], strict=True) if entry]


Check = Callable[[Served], None]


def nothing(served: Served) -> None:
    """What there is to see is seen in the tokens."""


@dataclass(frozen=True)
class Feature:
    name: str
    """As the table has it."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Sampling parameters."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Fields of EngineConfig."""
    check: Check = nothing
    exact: bool = True
    """Tokens are those of the plain engine."""
    tolerance: float = 2e-3
    """Of log-probabilities beside the plain engine's."""


def chosen_by_argmax(served: Served) -> None:
    if served.params.structured_outputs or served.params.logit_bias:
        return  # then it is the most likely of what is left
    for answer, choice in served.choices:
        tokens = answer.prompt_token_ids + choice.token_ids
        scoring = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
        (scored,) = served.plain.generate([tokens], scoring, progress=False)
        for entry in (scored.prompt_logprobs or [])[len(answer.prompt_token_ids) :]:
            assert entry is not None
            chosen, *_ = entry.values()
            assert chosen.logprob >= max(e.logprob for e in entry.values()) - served.tolerance


def two_choices(served: Served) -> None:
    assert all([choice.index for choice in answer.outputs] == [0, 1] for answer in served.answers)


def best_first(served: Served) -> None:
    for answer in served.answers:
        sums = [choice.cumulative_logprob for choice in answer.outputs]
        assert None not in sums and sums == sorted(sums, key=lambda value: -(value or 0.0))


def beams_by_score(served: Served) -> None:
    for answer in served.answers:
        scores = [choice.beam_score for choice in answer.outputs]
        assert None not in scores and scores == sorted(scores, key=lambda score: -(score or 0.0))


def processors_applied(served: Served) -> None:
    for _, choice in served.choices:
        assert BIASED not in choice.token_ids
        assert len(choice.token_ids) >= 5 or served.params.structured_outputs is not None


def matches_pattern(served: Served) -> None:
    for _, choice in served.choices:
        if choice.finish_reason == "stop" and choice.stop_reason is None:
            assert re.fullmatch(PATTERN, choice.text)
        assert re.fullmatch(r"[a-d]{0,9}", choice.text)


def logprobs_are_the_models(served: Served) -> None:
    for answer, choice in served.choices:
        tokens = answer.prompt_token_ids + choice.token_ids
        expected = served.logprobs(tokens)[len(answer.prompt_token_ids) - 1 :]
        assert choice.logprobs is not None
        found = [entry[token].logprob for entry, token in zip(choice.logprobs, choice.token_ids, strict=True)]
        assert found == pytest.approx(expected, abs=served.tolerance)
        assert all(len(entry) >= 2 for entry in choice.logprobs)


def prompt_logprobs_are_the_models(served: Served) -> None:
    for answer in served.answers:
        entries = (answer.prompt_logprobs or [])[1:]
        tokens = answer.prompt_token_ids[1:]
        found = [entry[token].logprob for entry, token in zip(entries, tokens, strict=True) if entry]
        assert found == pytest.approx(served.logprobs(answer.prompt_token_ids), abs=served.tolerance)


def cut_at_stops(served: Served) -> None:
    if served.params.min_tokens:
        return  # what comes before so many tokens stops nothing
    for _, choice in served.choices:
        assert not any(stop in choice.text for stop in served.params.stop)


def came_in_pieces(served: Served) -> None:
    """A token at a time, or what a step accepted; but beams whole, when the search has ended."""
    for answer, choice in served.choices:
        count = served.pieces[answer.request_id, choice.index]
        assert count == 1 if served.params.use_beam_search else count >= len(choice.token_ids) / 5


def preempted(served: Served) -> None:
    assert served.events.preemptions


def swapped(served: Served) -> None:
    assert served.events.swap_outs


def drafted(served: Served) -> None:
    params = served.params
    if not params.use_beam_search:
        assert served.events.drafted


SEESAW = {"scheduler": "seesaw", "max_num_seqs": 4}
"""A policy of the tests, under which all requests are preempted repeatedly."""

FEATURES = [
    Feature("greedy", {"temperature": 0}, check=chosen_by_argmax),
    Feature("sampling", {"temperature": 0.9, "top_p": 0.95, "seed": 7}),
    Feature("beam search", {"use_beam_search": True, "beam_width": 4}, check=beams_by_score),
    Feature("n", {"n": 2}, check=two_choices),
    Feature("best_of", {"best_of": 3}, check=best_first),
    Feature(
        "logits processors",
        {
            "presence_penalty": 0.5,
            "logit_bias": {BIASED: 9.0},
            "bad_words": (WORD,),
            "min_tokens": 5,
        },
        check=processors_applied,
    ),
    Feature(
        "structured output", {"structured_outputs": StructuredOutputs(regex=PATTERN)}, check=matches_pattern
    ),
    Feature("stop strings", {"stop": ("b", "\n")}, check=cut_at_stops),
    Feature("logprobs", {"logprobs": 2}, check=logprobs_are_the_models),
    Feature("prompt_logprobs", {"prompt_logprobs": 1}, check=prompt_logprobs_are_the_models),
    Feature("streaming", check=came_in_pieces),
    Feature("draft model", engine={"decoding": "speculative:draft=DRAFT,k=3,adaptive=false"}, check=drafted),
    Feature("n-gram drafts", engine={"decoding": "speculative:ngram=true,adaptive=false"}, check=drafted),
    Feature("contiguous KV", engine={"kv": "contiguous"}),
    Feature("int8 KV", engine={"kv": "paged:dtype=int8"}, exact=False, tolerance=0.3),
    Feature("fp8 KV", engine={"kv": "paged:dtype=fp8"}, exact=False, tolerance=0.3),
    # Without compiled kernels, a sum in another order may round an activation to the next of few numbers.
    Feature("int8 weights", engine={"quantization": "int8"}, tolerance=0.05),
    Feature("int4 weights", engine={"quantization": "int4wo:group_size=32"}, tolerance=0.05),
    Feature("chunked prefill", engine={"max_num_batched_tokens": 8}),
    Feature("preemption by recompute", engine={**SEESAW, "preemption": "recompute"}, check=preempted),
    Feature(
        "preemption by swap", engine={**SEESAW, "preemption": "swap", "swap_memory": 2**26}, check=swapped
    ),
    Feature("overlapping steps", engine={"async_scheduling": True}),
]
BY_NAME = {feature.name: feature for feature in FEATURES}
