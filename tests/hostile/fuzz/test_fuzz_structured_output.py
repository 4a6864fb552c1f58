"""Forms at random, well made or not: each is held, or refused with 400, and nothing crashes."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import validate
from jsonschema.exceptions import SchemaError
from tiny_server import TinyServer

Form = dict[str, Any]

QUICK = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
LONG = settings(QUICK, max_examples=4000, derandomize=False)

# ------------------------------------------------------------------ forms

names = st.sampled_from(["a", "b", "name", "e\u0301", 'quo"te', "名", "$ref", ""])
numbers = (
    st.integers(-(10**20), 10**20)
    | st.integers(-5, 50)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
)
texts = st.text(max_size=8) | st.sampled_from(["<|im_end|>", "\u1112\u1161\u11ab", "a" * 5000])
constants = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)
pieces = st.sampled_from(
    [*"ab.^$|\\", r"\d", r"\w", r"\p{L}", "[a-f]", "[^x]", "[a&&b]", "é", " ", "(?i)", "(?=a)"]
)
repeats = st.sampled_from(["", "", "", "*", "+", "?", "{2,5}", "{0,300}", "{5000}", "{3,1}", "*?"])
regexes = st.recursive(
    st.builds("{}{}".format, pieces, repeats),
    lambda inner: (
        st.lists(inner, max_size=4).map("".join)
        | st.builds("({}|{}){}".format, inner, inner, repeats)
        | st.builds("(?:{}){}".format, inner, repeats)
    ),
    max_leaves=8,
)
counts = st.integers(0, 4) | st.sampled_from([-1, 1000, 10**6, 10**12])
references = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/nowhere", "http://x/y"])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Form]:
    """Schemas of any kind, some of whose keywords contradict each other."""
    several = st.lists(inner, min_size=1, max_size=3)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(
            ["object", "array", "string", "integer", "number", "null", "boolean", "strin"]
        ),
        "properties": st.dictionaries(names, inner, max_size=3),
        "required": st.lists(names, max_size=2),
        "additionalProperties": st.booleans() | inner,
        "patternProperties": st.dictionaries(regexes, inner, max_size=2),
        "items": inner,
        "prefixItems": several,
        "minItems": counts,
        "maxItems": counts,
        "minLength": counts,
        "maxLength": counts,
        "pattern": regexes,
        "format": st.sampled_from(["date", "uuid", "email", "ipv6", "uri", "none"]),
        "minimum": numbers,
        "exclusiveMaximum": numbers,
        "multipleOf": st.sampled_from([0, 1, 2, 0.1, 7, 9973, -3]),
        "anyOf": several,
        "allOf": several,
        "oneOf": several,
        "not": inner,
        "$ref": references,
        "$defs": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        "enum": st.lists(constants, max_size=4),
        "const": constants,
    }
    return st.sets(st.sampled_from(sorted(keywords)), max_size=5).flatmap(
        lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in sorted(chosen)})
    )


schemas = st.recursive(st.booleans() | st.just({}) | objects(st.just({})), objects, max_leaves=6)
rule_names = st.sampled_from(["start", "one", "two", "ONE", "TWO"])
terms = (
    rule_names
    | texts.map(json.dumps)
    | regexes.map(lambda regex: f"/{regex}/")
    | st.sampled_from(["<|im_end|>", "<[5]>", "<none>", '%json {"type": "null"}', '"a".."f"', "(", "{9,"])
)
bodies = st.lists(
    st.builds("{}{}".format, terms, st.sampled_from(["", "", "*", "+", "?", "{2,3}", "{5000}", " |", " &"])),
    min_size=1,
    max_size=4,
).map(" ".join)
grammars = st.dictionaries(rule_names, bodies, max_size=4).map(
    lambda rules: "".join(
        f"{name}: {body}\n" for name, body in {"start": "one", "one": '"1"', **rules}.items()
    )
)
choices = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5)
forms = (
    st.builds(lambda schema: {"guided_json": schema}, schemas.filter(lambda schema: isinstance(schema, dict)))
    | regexes.map(lambda regex: {"guided_regex": regex})
    | grammars.map(lambda grammar: {"guided_grammar": grammar})
    | choices.map(lambda choice: {"guided_choice": choice})
)

# ------------------------------------------------------------------ what holds of each


def attack(tiny: TinyServer, form: Form) -> None:
    answer = tiny.post("/v1/completions", {"prompt": "x", "max_tokens": 40, "seed": 1, **form})
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["param"] in form and error["message"], error
        return
    choice = answer.json()["choices"][0]
    if choice["finish_reason"] == "stop":
        holds(form, choice["text"])


def holds(form: Form, text: str) -> None:
    if "guided_choice" in form:
        assert text in form["guided_choice"]
    if "guided_json" in form:
        value = json.loads(text)
        with suppress(SchemaError):  # the compiler took what is no schema, such as a negative length
            validate(value, form["guided_json"])


@QUICK
@given(form=forms)
def test_any_form_is_held_or_refused(tiny: TinyServer, form: Form) -> None:
    attack(tiny, form)


@pytest.mark.slow
@LONG
@given(form=forms)
def test_any_of_thousands_of_forms_is_held_or_refused(tiny: TinyServer, form: Form) -> None:
    attack(tiny, form)
