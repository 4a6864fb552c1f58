"""instructor in the modes of its clients of OpenAI and Anthropic: whole, partial and lists of answers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import anthropic
import instructor
import openai
import pytest
from instructor import Mode
from pydantic import BaseModel, field_validator
from script import Script, call, rule

URL = os.environ["TURNOUT_URL"]
NAME = os.environ["TURNOUT_MODEL"]
SCRIPT = Script(Path(os.environ["TURNOUT_SCRIPT"]))
ASK = [{"role": "user", "content": "Who is Ada?"}]
ADA = '{"name": "Ada", "age": 36}'
TEXTS = {Mode.JSON, Mode.JSON_O1, Mode.JSON_SCHEMA, Mode.MD_JSON, Mode.ANTHROPIC_JSON}
"""Modes in which the answer is text, and no call."""
OPENAI = [
    *(Mode.FUNCTIONS, Mode.TOOLS, Mode.TOOLS_STRICT, Mode.RESPONSES_TOOLS),
    *(Mode.JSON, Mode.JSON_O1, Mode.JSON_SCHEMA, Mode.MD_JSON),
]
ANTHROPIC = [Mode.ANTHROPIC_TOOLS, Mode.ANTHROPIC_REASONING_TOOLS, Mode.ANTHROPIC_JSON]
PARALLEL = [Mode.PARALLEL_TOOLS, Mode.ANTHROPIC_PARALLEL_TOOLS]


class Person(BaseModel):
    """Someone."""

    name: str
    age: int


class Adult(Person):
    @field_validator("age")
    @classmethod
    def _grown(cls, value: int) -> int:
        if value < 18:
            raise ValueError("she was older than that")
        return value


def answer(mode: Mode, kind: type[BaseModel], text: str = ADA) -> str:
    if mode not in TEXTS:
        return call(kind.__name__, **json.loads(text))
    return f"```json\n{text}\n```" if mode is Mode.MD_JSON else text


@pytest.fixture(params=[*OPENAI, *ANTHROPIC], ids=lambda mode: mode.name)
def mode(request) -> Mode:
    return request.param


@pytest.fixture
def client(mode: Mode):
    if mode.name.startswith("ANTHROPIC"):
        with anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0) as client:
            yield instructor.from_anthropic(client, mode=mode, model=NAME, max_tokens=500)
    else:
        with openai.OpenAI(
            base_url=f"{URL}/v1", api_key="none", max_retries=0, _strict_response_validation=True
        ) as client:
            yield instructor.from_openai(client, mode=mode, model=NAME)


def test_an_answer(client, mode: Mode) -> None:
    SCRIPT.play(rule(answer(mode, Person)))
    answered = client.create(response_model=Person, messages=ASK)
    assert (answered.name, answered.age) == ("Ada", 36)


def test_an_answer_that_is_corrected(client, mode: Mode) -> None:
    SCRIPT.play(
        rule(answer(mode, Adult), "she was older than that"),
        rule(answer(mode, Adult, '{"name": "Ada", "age": 3}')),
    )
    assert client.create(response_model=Adult, messages=ASK, max_retries=2).age == 36


def test_an_answer_as_it_comes(client, mode: Mode) -> None:
    SCRIPT.play(
        rule(answer(mode, Person).replace("Person", "PartialPerson")),
    )
    parts = list(client.create_partial(response_model=Person, messages=ASK))
    assert parts[-1].name == "Ada" and parts[-1].age == 36 and len(parts) > 2


def test_several_answers(client, mode: Mode) -> None:
    SCRIPT.play(rule(answer(mode, _Iterable, '{"tasks": [' + ADA + ', {"name": "Bea", "age": 2}]}')))
    people = client.create_iterable(response_model=Person, messages=ASK)
    assert [person.name for person in people] == ["Ada", "Bea"]


@pytest.mark.parametrize("mode", PARALLEL, ids=lambda mode: mode.name, indirect=True)
def test_answers_of_several_kinds(client, mode: Mode) -> None:
    SCRIPT.play(rule(call("Person", name="Ada", age=36) + call("Adult", name="Bea", age=20)))
    people = client.create(response_model=Iterable[Person | Adult], messages=ASK)
    assert [type(person).__name__ for person in people] == ["Person", "Adult"]


class _Iterable(BaseModel):
    tasks: Iterable[Person]


_Iterable.__name__ = "IterablePerson"
