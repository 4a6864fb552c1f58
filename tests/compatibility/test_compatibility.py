"""Every pair of features in docs/reference/compatibility.md: it works, or is refused with a reason.

What only changes how an engine works must change no token, so pairs are compared with the plain engine. Pairs
of sampling parameters are looked at one by one, see `features`.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from features import BY_NAME, FEATURES, LENGTH, Events, Feature, Served
from local_client import answers_over_http
from one_in import one_in

from turnout import LLM, SamplingParams
from turnout.core.errors import ConfigError, RequestError
from turnout.core.types.messages import Delta
from turnout.server.protocol.completions import CompletionRequest

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
PROMPTS = [
    "def add(a, b):\n    return",
    "import os\nimport sys\n\nfor name in",
    "class Stack:\n    # 你好，世界\n    def push(self",
    "x = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1,",
    "while True:\n    try:\n",
]

FEW = tuple(range(300, 308))


ALTERNATIVES = {
    ("greedy", "sampling"),
    ("greedy", "beam search"),
    ("int8 KV", "fp8 KV"),
    ("int8 weights", "int4 weights"),
    ("preemption by recompute", "preemption by swap"),
}
"""Values of one setting, so that there is nothing to combine."""


def refused() -> set[tuple[str, str]]:
    """The pairs in the document's table."""
    table = DOCUMENT.read_text().partition("| feature |")[2].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:])
    return {(first, second) for first, second, _ in cells}


PAIRS = set(combinations((feature.name for feature in FEATURES), 2)) - ALTERNATIVES
REFUSED = refused()


def merged(first: Feature, second: Feature) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sampling parameters and engine options of both."""
    kvs = [feature.engine["kv"] for feature in (first, second) if "kv" in feature.engine]
    params, engine = {**first.params, **second.params}, {**first.engine, **second.engine}
    if "decoding" in first.engine and "decoding" in second.engine:
        engine["decoding"] = "speculative:draft=DRAFT,ngram=true"
    if len(kvs) == 2:
        (backend, _, _), (_, _, options) = (kv.partition(":") for kv in sorted(kvs))
        engine["kv"] = f"{backend}:{options}"
    if not {"temperature", "use_beam_search"} & params.keys():
        params["temperature"] = 0
        if {"n", "best_of"} & params.keys():
            params |= BY_NAME["sampling"].params
    if second is BY_NAME["n-gram drafts"] and (params.get("temperature") or "logit_bias" in params):
        params["allowed_token_ids"] = FEW  # what is drawn from a whole vocabulary hardly repeats anything
    if "stop" in params and "preemption" in engine:
        engine["max_num_seqs"] = 2  # some end so early that otherwise no request waits for long
    return params, engine


def serve(
    llm: LLM, params: SamplingParams, plain: LLM, *, together: bool = True, tolerance: float = 2e-3
) -> Served:
    pieces: Counter[tuple[str, int]] = Counter()
    before = Events.of(llm.engine.stats())
    step = llm.engine.step

    def watched() -> list[Delta]:
        deltas = step()
        pieces.update((delta.request_id, delta.index) for delta in deltas if delta.tokens)
        return deltas

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llm.engine, "step", watched)
        if together:
            answers = llm.generate(PROMPTS, params, progress=False)
        else:
            answers = [llm.generate(prompt, params, progress=False)[0] for prompt in PROMPTS]
    assert llm.engine.scheduler.kv.free == llm.engine.scheduler.kv.capacity
    return Served(params, answers, pieces, Events.of(llm.engine.stats()).since(before), plain, tolerance)


def tokens(served: Served) -> list[list[int]]:
    return [choice.token_ids for _, choice in served.choices]


_EXPECTED: dict[tuple[LLM, str], list[list[int]]] = {}


def expected(params: SamplingParams, plain: LLM) -> list[list[int]]:
    """One request at a time, with nothing switched on."""
    key = plain, repr(params)
    if key not in _EXPECTED:
        _EXPECTED[key] = tokens(serve(plain, params, plain, together=False))
    return _EXPECTED[key]


def test_the_document_has_every_feature() -> None:
    named = re.findall(r"\*\*(.+?)\*\*", DOCUMENT.read_text())
    assert sorted(named) == sorted(feature.name for feature in FEATURES)


def test_the_refused_pairs_are_pairs() -> None:
    assert REFUSED and REFUSED < PAIRS


def by_engine(pair: tuple[str, str]) -> str:
    return str([dict(BY_NAME[name].engine) for name in pair])


TOGETHER = sorted(PAIRS - REFUSED, key=lambda pair: (by_engine(pair), pair))


def test_a_sixth_has_every_feature_that_goes_with_any() -> None:
    assert {name for pair in TOGETHER[::6] for name in pair} == {name for pair in TOGETHER for name in pair}


class Together(NamedTuple):
    """Two features switched on at once, and what was answered."""

    pair: tuple[str, str]
    params: dict[str, Any]
    llm: LLM
    served: Served


@pytest.fixture(scope="module", params=one_in(6, TOGETHER, "-".join))
def together(request: pytest.FixtureRequest, make_llm: Any, make_plain: Any) -> Together:
    """In order of engines, of which there is one at a time."""
    first, second = (BY_NAME[name] for name in request.param)
    fields, engine = merged(first, second)
    llm, params = make_llm(engine), SamplingParams(**{"max_tokens": LENGTH, **fields})
    tolerance = max(first.tolerance, second.tolerance)
    served = serve(llm, params, make_plain(engine), tolerance=tolerance)
    return Together(request.param, fields, llm, served)


def test_they_go_together(together: Together) -> None:
    features, served = [BY_NAME[name] for name in together.pair], together.served
    for feature in features:
        feature.check(served)
    if all(feature.exact for feature in features):
        assert tokens(served) == expected(served.params, served.plain)


def body(prompt: str, pair: tuple[str, str], params: dict[str, Any]) -> dict[str, Any]:
    """What a client would send for it."""
    asked: dict[str, Any] = {"prompt": prompt, "max_tokens": LENGTH, **params, "stream": "streaming" in pair}
    if form := asked.pop("structured_outputs", None):
        asked["structured_outputs"] = {"regex": form.regex}
    return asked


def test_over_http_it_is_the_same(together: Together) -> None:
    pair, offline = together.pair, together.served.answers
    over = answers_over_http(together.llm, [body(prompt, pair, together.params) for prompt in PROMPTS])
    assert [[c["text"] for c in choices] for choices in over] == [
        [choice.text for choice in answer.outputs] for answer in offline
    ]
    assert [[c["finish_reason"] for c in choices] for choices in over] == [
        [choice.finish_reason for choice in answer.outputs] for answer in offline
    ]
    if "logprobs" in pair and "streaming" not in pair:
        assert all(c["logprobs"]["token_logprobs"] for choices in over for c in choices)
    if "prompt_logprobs" in pair:
        assert all(c["prompt_logprobs"] for choices in over for c in choices)


@pytest.mark.parametrize(("first", "second"), sorted(REFUSED))
def test_they_are_refused_together(first: str, second: str, make_llm: Any) -> None:
    params, engine = merged(BY_NAME[first], BY_NAME[second])
    with pytest.raises((RequestError, ConfigError)) as refusal:
        if "streaming" in (first, second):
            CompletionRequest(prompt=[PROMPTS[0]], stream=True, **params)
        make_llm(engine).generate(PROMPTS[0], SamplingParams(**params), progress=False)
    assert any(str(name) in str(refusal.value) for name in (*params, *engine)), "it names what is at fault"
