"""Offline: outputs have the form that was asked for, however they come about."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from babbler import END, KV_BYTES

from turnout import LLM, SamplingParams, StructuredOutputs
from turnout.core.errors import RequestError
from turnout.llm import CompletionOutput

PROMPT = [7, 8, 9]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "语言": {"type": "array", "items": {"enum": ["中文", "English"]}, "maxItems": 3},
    },
    "required": ["name", "age", "语言"],
    "additionalProperties": False,
}
CHOICES = ["a", "ab", "你好", 'quo"te\n', "🙂🙂", "\\d+"]
CALENDAR = "(19|20)[0-9]{2}年(1[0-2]|[1-9])月"
SUM = """
root   ::= number (" + " number)*
number ::= [1-9] [0-9]{0,2}
"""


def ask(llm: LLM, count: int = 1, **params: Any) -> list[CompletionOutput]:
    """All choices, of `count` requests with different seeds."""
    form = {
        key: params.pop(key) for key in ("json", "regex", "choice", "grammar", "json_object") if key in params
    }
    given = {"max_tokens": 300, "temperature": 1.0, "structured_outputs": StructuredOutputs(**form), **params}
    asked = [SamplingParams(**{"seed": seed, **given}) for seed in range(count)]
    outputs = llm.generate([PROMPT] * count, asked, progress=False)
    return [choice for output in outputs for choice in output.outputs]


# ------------------------------------------------------------------ each form


def test_a_regular_expression_matches_all_of_the_output(llm: LLM) -> None:
    for out in ask(llm, 10, regex=CALENDAR):
        assert re.fullmatch(CALENDAR, out.text) and out.finish_reason == "stop"


def test_a_choice_is_one_of_them_and_any_can_be(llm: LLM) -> None:
    texts = [out.text for out in ask(llm, 120, choice=CHOICES, temperature=10.0)]
    assert set(texts) == set(CHOICES)


@pytest.mark.parametrize("grammar", [SUM, 'start: NUMBER (" + " NUMBER)*\nNUMBER: /[1-9][0-9]{0,2}/'])
def test_a_grammar_in_gbnf_or_lark(llm: LLM, grammar: str) -> None:
    for out in ask(llm, 10, grammar=grammar):
        assert re.fullmatch(r"[1-9]\d{0,2}( \+ [1-9]\d{0,2})*", out.text)


def test_any_json_object(llm: LLM) -> None:
    ended = [out for out in ask(llm, 30, json_object=True) if out.finish_reason == "stop"]
    assert ended and all(isinstance(json.loads(out.text), dict) for out in ended)


def test_a_schema_may_be_given_as_text(llm: LLM) -> None:
    as_text, as_object = ask(llm, json=json.dumps(PERSON)), ask(llm, json=PERSON)
    assert as_text[0].text == as_object[0].text
    assert set(json.loads(as_text[0].text)) == set(PERSON["properties"])


def test_blanks_come_to_an_end(llm: LLM) -> None:
    blank = {llm.tokenizer.encode(" ")[0]: 100.0}
    for out in ask(llm, 5, json=PERSON, logit_bias=blank, max_tokens=600):
        assert " " * 20 in out.text and " " * 21 not in out.text
        assert json.loads(out.text)


# ------------------------------------------------------------------ the end


def test_the_end_of_sequence_comes_exactly_when_the_output_is_complete(llm: LLM) -> None:
    eager = {"logit_bias": {END: 100.0}}
    for out in ask(llm, 10, regex="(ab*c?)+", **eager):
        assert len(out.token_ids) == 2 and out.text == llm.tokenizer.decode(out.token_ids[:1])
    (out,) = ask(llm, regex="[ab]{7}", **eager)
    assert re.fullmatch("[ab]{7}", out.text) and out.token_ids[-1] == END


def test_a_complete_output_ends_even_before_min_tokens(llm: LLM) -> None:
    (out,) = ask(llm, regex="abc", min_tokens=50, max_tokens=60)
    assert (out.text, out.finish_reason) == ("abc", "stop")


def test_min_tokens_holds_back_the_end_while_there_is_more_to_say(llm: LLM) -> None:
    (out,) = ask(llm, regex="a*", min_tokens=20, logit_bias={END: 100.0})
    assert len(out.token_ids) == 21 and set(out.text) == {"a"}


def test_with_ignore_eos_only_ends_of_sequence_follow(llm: LLM) -> None:
    (out,) = ask(llm, choice=["yes"], ignore_eos=True, max_tokens=30)
    assert (out.text, out.finish_reason, len(out.token_ids)) == ("yes", "length", 30)
    assert set(out.token_ids[-20:]) == {END}


def test_a_stop_string_cuts_as_ever(llm: LLM) -> None:
    (out,) = ask(llm, regex="x{5},y{5}", stop=[","])
    assert (out.text, out.finish_reason, out.stop_reason) == ("xxxxx", "stop", ",")


def test_the_length_cuts_as_ever(llm: LLM) -> None:
    (out,) = ask(llm, regex="[a-z]{500}", max_tokens=3)
    assert out.finish_reason == "length" and len(out.token_ids) == 3


# ------------------------------------------------------------------ together with all else


def test_choices_part_and_each_has_the_form(llm: LLM) -> None:
    outs = ask(llm, 4, json=PERSON, n=3)
    assert all(json.loads(out.text)["age"] <= 150 for out in outs)
    assert len({out.text for out in outs}) > 6


def test_greedy_has_the_form(llm: LLM) -> None:
    (out,) = ask(llm, json={"type": "array", "items": {"type": "boolean"}, "maxItems": 4}, temperature=0.0)
    assert isinstance(json.loads(out.text), list)


def test_beams_have_the_form(llm: LLM) -> None:
    """They fork and drop at every step."""
    beams = {"temperature": 0.0, "use_beam_search": True, "beam_width": 4}
    outs = ask(llm, 2, json=PERSON, n=3, **beams)
    assert all(json.loads(out.text)["age"] <= 150 for out in outs) and len(outs) == 6


def test_the_best_of_several_has_the_form(llm: LLM) -> None:
    (out,) = ask(llm, json=PERSON, best_of=4)
    assert set(json.loads(out.text)) == set(PERSON["properties"])


def test_logprobs_are_the_models_own(llm: LLM) -> None:
    """To it, what the form forces is as unlikely as ever."""
    (out,) = ask(llm, choice=["yes"], logprobs=2)
    assert out.text == "yes" and out.logprobs is not None and len(out.logprobs) == len(out.token_ids)
    assert all(entry[token].logprob < -2 for token, entry in zip(out.token_ids, out.logprobs, strict=True))


def test_a_bias_and_a_penalty_choose_among_what_may_come(llm: LLM) -> None:
    biased = llm.tokenizer.encode("no")[0]
    texts = {out.text for out in ask(llm, 10, choice=["yes", "no"], logit_bias={biased: 100.0})}
    assert texts == {"no"}


def test_requests_with_and_without_a_form_do_not_mind_each_other(llm: LLM) -> None:
    form = StructuredOutputs(json=PERSON)
    mixed = [
        SamplingParams(seed=seed, max_tokens=60, structured_outputs=form if seed % 2 else None)
        for seed in range(12)
    ]
    together = llm.generate([PROMPT] * 12, mixed, progress=False)
    for params, out in zip(mixed, together, strict=True):
        (alone,) = llm.generate(PROMPT, params, progress=False)
        assert alone.outputs[0].token_ids == out.outputs[0].token_ids


@pytest.mark.parametrize("n", [1, 2])
def test_preemption_changes_nothing(llm: LLM, babbler: Path, n: int) -> None:
    roomy = ask(llm, 12, json=PERSON, n=n)
    memory = 320 * n * KV_BYTES
    cramped = LLM(
        str(babbler), device="cpu", kv_memory=memory, max_model_len=310, max_num_seqs=64, block_size=8
    )
    outs = ask(cramped, 12, json=PERSON, n=n)
    assert cramped.engine.stats().preemptions > 0
    assert [out.token_ids for out in outs] == [out.token_ids for out in roomy]


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"json": {"type": "strin"}}, "the JSON schema cannot be compiled: Invalid type: strin"),
        ({"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"json": {"$ref": "#/nowhere"}}, "nowhere"),
        ({"json": {"enum": [2**53 + 1]}}, "enum has 9007199254740993, and numbers beyond 2\\^53"),
        ({"json": "{"}, "the JSON schema cannot be compiled: "),
        ({"json": {"type": "integer", "minimum": 3, "maximum": 2}}, "Unsatisfiable"),
        ({"regex": "["}, "the regex cannot be compiled: .*unclosed character class"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"grammar": "start: missing"}, "the grammar cannot be compiled: .*missing"),
        ({"grammar": "root ::= ("}, "the grammar cannot be compiled: "),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_the_reason(
    llm: LLM, form: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RequestError, match=f"(?s){reason}") as refusal:
        ask(llm, **form)
    assert refusal.value.param == "structured_outputs"
    assert not llm.engine.busy


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({}, "exactly one of json, regex, choice, grammar, json_object, not none"),
        ({"regex": "a", "json_object": True}, "not regex and json_object"),
        ({"json_object": False}, "not none"),
        ({"choice": []}, "choice must be a list of strings"),
        ({"choice": ["a", ""]}, "none of them empty"),
        ({"json": 3}, "json must be an object or a string"),
        ({"regex": 3}, "regex must be a string"),
    ],
)
def test_what_cannot_be_meant_is_refused(form: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        StructuredOutputs(**form)


def test_two_answers_to_what_may_come_are_refused() -> None:
    with pytest.raises(RequestError, match="allowed_token_ids both say what may come; give one"):
        SamplingParams(structured_outputs=StructuredOutputs(json_object=True), allowed_token_ids=[1])
    with pytest.raises(RequestError, match="must be a StructuredOutputs"):
        SamplingParams(structured_outputs={"json_object": True})  # type: ignore[arg-type]


def test_an_option_says_how_long_a_form_may_be_compiled(babbler: Path) -> None:
    llm = LLM(
        str(babbler),
        kv_memory="16MiB",
        device="cpu",
        logits_processor=["structured_output:compile_seconds=0.3"],
    )
    form = StructuredOutputs(json={"properties": {"a": {"type": "integer", "multipleOf": 999_983}}})
    with pytest.raises(RequestError, match=r"it takes more than 0\.3 s of processor time"):
        llm.generate([[5]], SamplingParams(structured_outputs=form), progress=False)
