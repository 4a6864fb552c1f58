"""Forms of structured output that crash, stall or fill the compiler, or make the steps after it slow."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from jsonschema import validate
from tiny_server import TinyServer

COMPLETIONS = "/v1/completions"
Body = dict[str, Any]


def chained(count: int) -> Body:
    """A schema of references, each to the next."""
    refs = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**refs, f"d{count}": {"type": "integer"}}}


def rules(count: int, head: str = "") -> str:
    """A Lark grammar of rules, each of which names the next."""
    lines = [f"r{i}: {head} r{i + 1}" for i in range(count)]
    return "\n".join(["start: r0", *lines, f'r{count}: "z"'])


def optional(count: int) -> Body:
    """An object of properties that may be left out."""
    return {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}}


def slow_to_compile(name: str, divisor: int = 999_983) -> Body:
    """A small schema, with as many states as its divisor is large."""
    return {"type": "object", "properties": {name: {"type": "integer", "multipleOf": divisor}}}


CRASHES = {
    "3,000 chained references": {"guided_json": chained(3000)},
    "5,000 rules": {"guided_grammar": rules(5000, '"a"')},
    "5,000 aliases": {"guided_grammar": rules(5000)},
    "1,000 objects, one in the other": {
        "guided_json": {
            "$ref": "#/$defs/d0",
            "$defs": {
                f"d{i}": {
                    "type": "object",
                    "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"} if i < 999 else {}},
                    "required": ["a"],
                }
                for i in range(1000)
            },
        }
    },
}
REFUSED = {
    "itself": ({"guided_json": {"$ref": "#"}}, "nothing has this form"),
    "each other": (
        {
            "guided_json": {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            }
        },
        "nothing has this form",
    ),
    "a rule of itself": ({"guided_grammar": "start: start"}, "nothing has this form"),
    "no character": ({"guided_regex": "[a&&b]"}, "nothing has this form"),
    "100,000 choices": ({"guided_choice": [f"c{i}" for i in range(100_000)]}, "at most 10,000 are allowed"),
    "a large schema": ({"guided_json": {"enum": ["x" * 1000] * 300}}, "at most 262,144 are allowed"),
    "a long text": ({"guided_json": {"const": "x" * 20_000}}, "a text of 20,000 bytes"),
    "a long choice": ({"guided_choice": ["x" * 20_000]}, "a choice has 20,000 bytes"),
    "a long literal": ({"guided_grammar": f'start: "{"x" * 20_000}"'}, "at most 16,384 are allowed"),
    "brackets as text": ({"guided_json": "[" * 100_000}, "nested too deeply"),
    "parentheses": ({"guided_grammar": f'start: {"(" * 9000}"a"{")" * 9000}'}, "nested"),
    "a million letters": ({"guided_regex": "a{1000000}b{1000000}"}, ""),
    "too many ways": (
        {"guided_json": {"allOf": [{"anyOf": [{"minimum": i}, {"maximum": 99 + i}]} for i in range(20)]}},
        "schema too large",
    ),
}


@pytest.fixture(autouse=True)
def same_engine(tiny: TinyServer) -> Iterator[None]:
    """No attack ends the engine's process."""
    before = [child.pid for child in tiny.process.children()]
    yield
    assert before == [child.pid for child in tiny.process.children()]


def ask(tiny: TinyServer, timeout: float = 60, **body: Any) -> httpx.Response:
    asked = {"prompt": "import", "max_tokens": 60, "seed": 1, **body}
    return tiny.post(COMPLETIONS, asked, timeout=timeout)


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["text"]
    return text


def refusal(response: httpx.Response, form: Body) -> str:
    """The message of a 400 that names the form's parameter."""
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert error["param"] in form
    message: str = error["message"]
    return message


# ------------------------------------------------------------------ at compilation


@pytest.mark.parametrize("name", CRASHES)
def test_a_form_that_overflows_the_compilers_stack_is_refused(tiny: TinyServer, name: str) -> None:
    """Each once ended the engine's process with SIGSEGV, and one request ended three."""
    form = CRASHES[name]
    for _ in range(2):
        assert "too deeply for the compiler" in refusal(ask(tiny, **form), form)


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_cannot_be_held_is_refused_with_a_reason(tiny: TinyServer, name: str) -> None:
    form, reason = REFUSED[name]
    assert reason in refusal(ask(tiny, **form), form)


@pytest.mark.slow
def test_slow_forms_hold_up_no_small_one(tiny: TinyServer) -> None:
    """A schema of 80 bytes took 8 s; two of them took both threads, also after the client had left."""
    with ThreadPoolExecutor() as threads:
        forms = [slow_to_compile("never"), slow_to_compile("late", 29_989)]
        slow = [threads.submit(ask, tiny, guided_json=form, max_tokens=2) for form in forms]
        time.sleep(0.2)
        for i in range(5):
            assert re.fullmatch(f"{i}[ab]c", text_of(ask(tiny, guided_regex=f"{i}[ab]c")))
        assert not slow[0].done()
        assert "3 s of processor time" in refusal(slow[0].result(), {"guided_json": 0})
        assert slow[1].result().status_code == 200


@pytest.mark.slow
def test_a_form_whose_client_left_is_compiled_no_further(tiny: TinyServer) -> None:
    """Slow forms that nobody waits for are not in the way of one that somebody waits for."""
    for i in range(3):
        with pytest.raises(httpx.ReadTimeout):
            form = {"guided_json": slow_to_compile(f"left{i}")}
            httpx.post(tiny.url + COMPLETIONS, json={"prompt": "a", **form}, timeout=0.4)
    began = time.monotonic()
    assert ask(tiny, guided_json=slow_to_compile("stays", 29_989), max_tokens=2).status_code == 200
    assert time.monotonic() - began < 9  # seconds of processor time that the three would have taken


@pytest.mark.slow
@pytest.mark.parametrize("form", [optional(8_500), slow_to_compile("alone")])
def test_slow_forms_are_refused(tiny: TinyServer, form: Body) -> None:
    assert "3 s of processor time" in refusal(ask(tiny, guided_json=form), {"guided_json": form})


@pytest.mark.slow
def test_more_slow_forms_than_may_wait_are_told_to_come_again(tiny: TinyServer) -> None:
    with ThreadPoolExecutor(24) as threads:
        forms = [slow_to_compile(f"many{i}") for i in range(24)]
        answers = list(threads.map(lambda form: ask(tiny, 300, guided_json=form), forms))
    refused = [answer for answer in answers if answer.status_code == 503]
    assert refused and {answer.status_code for answer in answers} <= {400, 503}
    assert all("retry-after" in answer.headers for answer in refused)


# ------------------------------------------------------------------ what now works


def test_thousands_of_choices(tiny: TinyServer) -> None:
    """From 2,000 on they once ended with 500, at the first token."""
    choices = [f"choice {i}" for i in range(9_000)]
    assert text_of(ask(tiny, guided_choice=choices)) in choices


def test_a_thousand_optional_properties(tiny: TinyServer) -> None:
    schema = {**optional(1000), "additionalProperties": False}
    answer = ask(tiny, guided_json=schema, max_tokens=300)
    if answer.json()["choices"][0]["finish_reason"] == "stop":
        validate(json.loads(text_of(answer)), schema)


@pytest.mark.parametrize(
    "text",
    [
        "e\u0301",  # é of two characters, which NFC makes one
        "\u1112\u1161\u11ab\u1100\u1173\u11af",  # Hangul in jamo
        "<|im_end|>",
        "a\0b",
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in (
                "caf\u0065\u0301 cre\u0300me",
                "\u212b",  # the Ångström sign, which NFC makes a letter
                "\u0958\u0344",
                "<|endoftext|> and <|im_start|>",
                "</s>",
                "🙂\u200d\ufe0f",
            )
        ),
    ],
)
def test_the_output_is_the_bytes_that_were_asked_for(tiny: TinyServer, text: str) -> None:
    """Decomposed characters once ended with 500: the text was tokenized after the model's normalizer."""
    assert text_of(ask(tiny, guided_choice=[text])) == text
    assert text_of(ask(tiny, guided_choice=[f"x{text}y", f"x{text}z"])) in (f"x{text}y", f"x{text}z")
    schema = {
        "type": "object",
        "properties": {text: {"const": text}},
        "required": [text],
        "additionalProperties": False,
    }
    assert json.loads(text_of(ask(tiny, guided_json=schema, max_tokens=400))) == {text: text}
    if unicodedata.normalize("NFC", text) != text:
        assert text_of(ask(tiny, guided_regex=text)) == text


def test_special_tokens_can_be_named_in_a_grammar(tiny: TinyServer) -> None:
    answer = ask(tiny, guided_grammar='start: "a" <|im_end|> "b"', skip_special_tokens=False)
    assert text_of(answer) == "a<|im_end|>b"


# ------------------------------------------------------------------ at each token


@pytest.mark.slow
def test_a_form_that_is_slow_at_each_token_ends_its_request_alone(tiny: TinyServer) -> None:
    """A grammar with more and more ways to read the same text: each token took longer than the one before."""
    form = {"guided_grammar": 'start: s\ns: s s | "a" | "b" | "c"'}
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(ask, tiny, **form, max_tokens=1500, min_tokens=1500)
        assert {tiny.answer() for _ in range(5)} == {tiny.tokens}
        assert re.search("processor time|Too many items|Current row", refusal(slow.result(), form))


def test_a_form_that_failed_is_compiled_anew(tiny: TinyServer) -> None:
    form = {"guided_grammar": 'start: x{100000}\nx: "a"'}
    for _ in range(2):
        assert "Too many items" in refusal(ask(tiny, **form), form)
