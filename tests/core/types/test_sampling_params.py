"""Sampling parameters are refused by name before anything computes, and are plain, comparable data."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import pytest

from turnout.core.errors import RequestError
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs

LIMITS: dict[str, tuple[float, float, float]] = {  # lowest, highest, and by how much is too much
    "n": (1, 128, 1),
    "temperature": (0, 100, 0.5),
    "top_k": (-1, 2**31 - 1, 1),
    "min_p": (0, 1, 0.01),
    "seed": (-(2**63), 2**63 - 1, 1),
    "max_tokens": (1, 2**31 - 1, 1),
    "presence_penalty": (-2, 2, 0.01),
    "frequency_penalty": (-2, 2, 0.01),
    "repetition_penalty": (0.01, 100, 0.005),
    "logprobs": (0, 20, 1),
    "prompt_logprobs": (0, 20, 1),
    "best_of": (1, 128, 1),
}


def test_who_says_nothing_is_sampled_from_the_models_own_distribution() -> None:
    """The defaults are vLLM's."""
    params = SamplingParams()
    assert params.sampled and not params.greedy
    assert (params.n, params.best_of, params.max_tokens, params.min_tokens) == (1, None, 16, 0)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, 0, 0.0)
    penalties = params.presence_penalty, params.frequency_penalty, params.repetition_penalty
    assert penalties == (0.0, 0.0, 1.0)
    assert (params.logprobs, params.prompt_logprobs) == (None, None)
    assert not any(
        (params.stop, params.stop_token_ids, params.logit_bias, params.bad_words, params.ignore_eos)
    )


@pytest.mark.parametrize("name", LIMITS)
def test_both_ends_of_a_range_are_inside(name: str) -> None:
    low, high, step = LIMITS[name]
    for value in (low, high):
        assert getattr(SamplingParams(**{name: value}), name) == value  # type: ignore[arg-type]
    for value in (low - step, high + step):
        with pytest.raises(RequestError, match=rf"^{name} must be between .* not {re.escape(str(value))}$"):
            SamplingParams(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 1.0}, "n must be an integer, not 1.0"),
        ({"n": True}, "n must be an integer, not True"),
        ({"n": None}, "n must be an integer, not None"),
        ({"temperature": "0"}, "temperature must be a number, not '0'"),
        ({"top_k": 10**5000}, "top_k must be between -1 and 2,147,483,647, not a huge number"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, not 0"),
        ({"temperature": "hot " * 20}, f"temperature must be a number, not {('hot ' * 20)!r:.37}..."),
        ({"temperature": "x" * 38}, f"temperature must be a number, not {'x' * 38!r}"),
        ({"temperature": "x" * 39}, f"temperature must be a number, not '{'x' * 36}..."),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens (4) must not exceed max_tokens (3)"),
        ({"stop": 7}, "stop must be a list, not 7"),
        ({"stop": ["", "a"]}, "stop must hold strings, none of them empty"),
        ({"stop": ["a" * 4097]}, "a stop string has 4,097 characters; at most 4,096 are allowed"),
        ({"stop": ["a"] * 33}, "stop has 33 strings; at most 32 are allowed"),
        ({"bad_words": ["a"] * 4097}, "bad_words has 4,097 words; at most 4,096 are allowed"),
        ({"bad_words": ["a" * 65_537]}, "bad_words have 65,537 characters together; at most 65,536 are"),
        ({"stop_token_ids": [7] * 4097}, "stop_token_ids has 4,097 tokens; at most 4,096 are allowed"),
        ({"logit_bias": dict.fromkeys(range(2**18 + 1), 1.0)}, "logit_bias has 262,145 tokens; at most"),
        ({"allowed_token_ids": [7] * (2**18 + 1)}, "allowed_token_ids has 262,145 tokens; at most 262,144"),
        ({"bad_words": [7]}, "bad_words must hold strings, none of them empty"),
        ({"stop_token_ids": ["a"]}, "stop_token_ids must hold token ids, which are integers"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias must hold token ids, which are integers"),
        ({"logit_bias": {7: float("inf")}}, "logit_bias must map token ids to finite numbers, not 7 to inf"),
        ({"logit_bias": {7: "a"}}, "logit_bias must map token ids to finite numbers, not 7 to 'a'"),
        ({"allowed_token_ids": []}, "allowed_token_ids must hold at least one token id"),
        ({"bad_words_token_ids": [[]]}, "bad_words_token_ids must hold no empty sequence"),
        ({"bad_words_token_ids": [7]}, "bad_words_token_ids must be a list, not 7"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs must be a StructuredOutputs, not"),
        (
            {"structured_outputs": StructuredOutputs(regex="a"), "allowed_token_ids": [7]},
            "structured_outputs and allowed_token_ids both say what may come; give one",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        SamplingParams(**given)
    assert str(refusal.value).startswith(message)
    assert refusal.value.param in given


def test_lists_become_tuples_and_a_lone_stop_string_one_of_one() -> None:
    params = SamplingParams(stop="END", stop_token_ids=[7], bad_words_token_ids=[[1, 2]])  # type: ignore[arg-type]
    assert (params.stop, params.stop_token_ids, params.bad_words_token_ids) == (("END",), (7,), ((1, 2),))
    assert params == SamplingParams(stop=("END",), stop_token_ids=(7,), bad_words_token_ids=((1, 2),))


def test_all_token_ids_are_found_by_the_field_they_stand_in() -> None:
    params = SamplingParams(
        stop_token_ids=(1,), logit_bias={2: 0.5}, allowed_token_ids=(3,), bad_words_token_ids=((4, 5), (6,))
    )
    found = [(name, list(tokens)) for name, tokens in params.token_ids()]
    assert found[:3] == [("stop_token_ids", [1]), ("logit_bias", [2]), ("allowed_token_ids", [3])]
    assert found[3:] == [("bad_words_token_ids", [4, 5]), ("bad_words_token_ids", [6])]


# ------------------------------------------------------------------ structured outputs


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"json": {"type": "object"}}, "json"),
        ({"regex": "a+"}, "regex"),
        ({"choice": ["yes", "no"]}, "choice"),
        ({"grammar": "root ::= 'a'"}, "grammar"),
        ({"json_object": True, "regex": None}, "json_object"),
    ],
)
def test_a_form_is_given_in_one_way(given: dict[str, Any], kind: str) -> None:
    assert StructuredOutputs(**given).kind == kind


def test_a_schema_is_kept_as_text_and_choices_as_a_tuple() -> None:
    assert StructuredOutputs(json={"title": "ß"}).json == '{"title": "ß"}'
    assert StructuredOutputs(choice=["yes", "no"]).choice == ("yes", "no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"json": 7}, "json must be an object or a string"),
        ({"regex": 7}, "regex must be a string"),
        ({"choice": []}, "choice must be a list of strings, none of them empty"),
        ({"choice": ["a", ""]}, "choice must be a list of strings, none of them empty"),
        ({"choice": "ab"}, "choice must be a list of strings, none of them empty"),
        ({}, "structured_outputs takes exactly one of .*, not none"),
        ({"json_object": False}, "structured_outputs takes exactly one of .*, not none"),
        ({"json": "{}", "regex": "a"}, "structured_outputs takes exactly one of .*, not json and regex"),
    ],
)
def test_a_form_that_cannot_be_meant_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=f"^{message}$") as refusal:
        StructuredOutputs(**given)
    assert refusal.value.param == "structured_outputs"


@pytest.mark.parametrize("given", [5, {5: 5}, {"x": None}, {"x": {}}, {"x": [1, math.nan]}, {"x": 2**63}])
def test_extra_arguments_are_plain_data(given: Any) -> None:
    with pytest.raises(RequestError, match=r"extra arguments? .*must be") as refusal:
        SamplingParams(extra_args=given)
    assert refusal.value.param == "extra_args"


def test_extra_arguments_travel_as_they_are() -> None:
    params = SamplingParams(
        extra_args={"n": 3, "share": 0.5, "words": ["一", "two"], "on": True, "low": -(2**63)}
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


@pytest.mark.parametrize(
    "name",
    ["stop", "stop_token_ids", "bad_words", "bad_words_token_ids", "logit_bias", "extra_args"],
)
def test_none_counts_as_not_given_where_it_is_vllms_default(name: str) -> None:
    """It was refused, or a TypeError."""
    assert SamplingParams(**{name: None}) == SamplingParams()


def test_a_bias_that_is_no_dictionary_is_refused() -> None:
    """It was an AttributeError."""
    with pytest.raises(RequestError, match=r"logit_bias must be a dictionary, not \[5\]"):
        SamplingParams(logit_bias=[5])  # type: ignore[arg-type]
