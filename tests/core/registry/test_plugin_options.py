"""Options come from a factory's typed signature and validate themselves."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from turnout.core.errors import ConfigError
from turnout.core.registry.options import Option, read_options


class Grade(Enum):
    GOOD = "good"
    BEST = "best"


def typed(
    aging: Annotated[float, Field(gt=0, description="Seconds until priority doubles.")],
    strict: bool = False,
    ladder: list[int] | None = None,
    mode: Literal["fast", "fair"] = "fair",
    grade: Grade = Grade.GOOD,
    shares: dict[str, float] | None = None,
    untyped=3,  # type: ignore[no-untyped-def]
    **rest: Any,
) -> None: ...


def bare(first, second=None) -> None: ...  # type: ignore[no-untyped-def]


class Settings(BaseModel):
    aging: float = Field(1.0, description="Seconds until priority doubles.")


class Modelled:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings


class Lists(BaseModel):
    sizes: list[int] = []
    most: int | None = 3


def listed(lists: Lists) -> None: ...


class Bare:
    """No options at all."""


def test_text_is_read_as_the_parameters_types() -> None:
    values = {
        "aging": "2.0",
        "strict": "true",
        "ladder": "[1,2]",
        "mode": "fast",
        "untyped": "4",
        "grade": "best",
    }
    assert read_options(typed).validate(values) == {
        "aging": 2.0, "strict": True, "ladder": [1, 2], "mode": "fast", "untyped": 4, "grade": Grade.BEST,
    }  # fmt: skip


@pytest.mark.parametrize("value", ["text", "7", [7]])
def test_what_says_nothing_of_its_type_takes_anything(value: object) -> None:
    assert read_options(bare).validate({"first": value, "second": value}) == {"first": value, "second": value}


def test_true_is_no_number() -> None:
    """Read as JSON, it became the number 1."""
    with pytest.raises(ConfigError, match=r"aging: .*number.*'true'"):
        read_options(typed).validate({"aging": "true"})


def test_fields_of_a_model_are_read_from_text_as_parameters_are() -> None:
    """JSON was refused, with the advice to give JSON; config files give lists in that way, too."""

    options = read_options(listed)
    made = options.validate({"sizes": "[1, 2]", "most": "null"})["lists"]
    assert isinstance(made, Lists) and made.sizes == [1, 2] and made.most is None
    with pytest.raises(ConfigError, match=r"most: .*integer.*'true'"):
        options.validate({"most": "true"})


def test_only_what_is_given_is_passed_on() -> None:
    assert read_options(typed).validate({"aging": 1, "ladder": "null"}) == {"aging": 1.0, "ladder": None}


@pytest.mark.parametrize(
    ("factory", "values", "message"),
    [
        (typed, {"aging": "soon"}, "aging: .*number.*'soon'"),
        (typed, {"aging": [1]}, "aging: .*number"),
        (typed, {"aging": "1", "ladder": "[1"}, r"ladder: .*list, in JSON, such as \[1, 2\] \(given: '\[1'"),
        (typed, {"aging": "1", "shares": "a"}, """shares: .*dictionary, in JSON, such as {"a": 1}"""),
        (typed, {"aging": "1", "grade": "worse"}, "grade: .*'good' or 'best'"),
        (typed, {"aging": "-1"}, "aging: .*greater than 0"),
        (typed, {}, "'aging' must be given"),
        (typed, {"aging": "1", "agin": "1"}, "'agin'; known: aging, strict, ladder.*; did you mean 'aging'"),
        (typed, {"aging": "1", "rest": "1"}, "unknown option 'rest'"),
        (typed, {"aging": "1", "mode": "slow"}, "mode: .*'fast' or 'fair'"),
        (Bare, {"aging": "1"}, "unknown option 'aging'; it takes no options"),
        (Modelled, {"agin": "1"}, "'agin'; known: aging; did you mean 'aging'"),
    ],
)
def test_what_does_not_fit_is_refused(
    factory: Callable[..., object], values: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_options(factory).validate(values)


def test_a_lone_model_parameter_spreads_into_options() -> None:
    options = read_options(Modelled)
    settings = Modelled(**options.validate({"aging": "2"})).settings
    assert isinstance(settings, Settings) and settings.aging == 2.0
    assert options.describe() == [Option("aging", "float", "1.0", "Seconds until priority doubles.")]


def test_options_describe_themselves() -> None:
    described = {option.name: option for option in read_options(typed).describe()}
    assert described["aging"] == Option("aging", "float", "", "Seconds until priority doubles.")
    assert described["strict"] == Option("strict", "bool", "false", "")
    assert described["ladder"] == Option("ladder", "list[int] | None", "null", "")
    assert described["mode"].default == "fair"
    assert described["grade"] == Option("grade", "Literal['good', 'best']", "good", "")


def test_an_option_may_be_called_like_a_method_of_pydantic() -> None:
    def factory(copy: int = 1, json: str = "", schema: str = "") -> None: ...

    assert read_options(factory).validate({"copy": "2", "schema": "s"}) == {"copy": 2, "schema": "s"}
