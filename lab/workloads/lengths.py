"""Lengths of prompts and outputs: distributions of numbers of tokens, and the form of each as an option.

::

    lengths   TOKENS | NAME ":" argument { ":" argument }
    argument  value  |  field "=" value          in the order of the fields, or by their names

So ``128``, ``uniform:50:200``, ``lognormal:161``, ``lognormal:161:spread=0.5:most=2000``,
``bimodal:100:3000:0.1``. No commas, which separate options, and no parentheses, which shells would read.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Annotated

from pydantic import BeforeValidator

from turnout.core import limits
from turnout.core.errors import did_you_mean

__all__ = [
    "Bimodal",
    "Documents",
    "Fixed",
    "Lengths",
    "LengthsOption",
    "Lognormal",
    "Nothing",
    "OutputOption",
    "Queries",
    "Uniform",
    "parse_lengths",
]


MOST = limits.TRACE_TOKENS.whole


class Lengths(ABC):
    """A distribution of numbers of tokens, each at least 1."""

    @abstractmethod
    def draw(self, rng: random.Random) -> int: ...

    def __str__(self) -> str:
        """The text of the option."""
        given = [f"{f.name}={value}" for f in fields(self) if (value := getattr(self, f.name)) != f.default]  # type: ignore[arg-type]
        return ":".join([type(self).__name__.lower(), *given])


@dataclass(frozen=True)
class Fixed(Lengths):
    """Always the same."""

    tokens: int

    def __post_init__(self) -> None:
        _check(self.tokens >= 1, "tokens must be at least 1")
        _check_most("tokens", self.tokens)

    def draw(self, rng: random.Random) -> int:
        return self.tokens

    def __str__(self) -> str:
        return str(self.tokens)


@dataclass(frozen=True)
class Uniform(Lengths):
    """Every length from `LOW` to `HIGH` is as likely."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check(1 <= self.low <= self.high, "1 <= low <= high must hold")
        _check_most("high", self.high)

    def draw(self, rng: random.Random) -> int:
        return rng.randint(self.low, self.high)


@dataclass(frozen=True)
class Lognormal(Lengths):
    """Many short and few long ones, like conversations. `MEAN` is that before `LEAST` and `MOST` cut."""

    mean: float
    spread: float = 1.0
    """standard deviation of the logarithm."""
    least: int = 4
    most: int = MOST

    def __post_init__(self) -> None:
        _check(self.mean > 0, "mean must be positive")
        _check_spread(self.spread)
        _check(1 <= self.least <= self.most, "1 <= least <= most must hold")
        _check_most("mean", self.mean)
        _check_most("most", self.most)

    def draw(self, rng: random.Random) -> int:
        drawn = rng.lognormvariate(math.log(self.mean) - self.spread**2 / 2, self.spread)
        return min(self.most, max(self.least, round(drawn)))


@dataclass(frozen=True)
class Bimodal(Lengths):
    """Two kinds, such as questions and documents; each lognormal about its mean."""

    short: float
    long: float
    share: float = 0.1
    """share of long requests, 0 to 1."""
    spread: float = 0.2

    def __post_init__(self) -> None:
        _check(0 < self.short <= self.long, "0 < short <= long must hold")
        _check_most("long", self.long)
        _check(0 <= self.share <= 1, "share must be 0 to 1")
        _check_spread(self.spread)

    def draw(self, rng: random.Random) -> int:
        mean = self.long if rng.random() < self.share else self.short
        return Lognormal(mean, self.spread, least=1).draw(rng)


TOKENS_PER_WORD = 1.3
QUERY_WORDS = (6, 11, 3, 9, 18, 11, 193, 7, 9, 10, 5, 9, 8, 20, 12)
DOCUMENT_WORDS = (56, 161, 232, 79, 46, 132, 167, 292, 129, 11, 50, 176, 85, 85, 214)
"""The means of MS MARCO, TREC-COVID, NFCorpus, NQ, HotpotQA, FiQA, ArguAna, Touché, CQADupStack, Quora,
DBPedia, SCIDOCS, FEVER, Climate-FEVER and SciFact: table 1 of Thakur et al. 2021."""


@dataclass(frozen=True)
class Documents(Lengths):
    """Texts that are embedded: BEIR's 15 collections (Thakur et al. 2021), also MTEB's, each as often."""

    most: int = 512
    spread: float = 0.5
    """standard deviation of the logarithm, about each collection's mean."""

    def __post_init__(self) -> None:
        _check(self.most >= 1, "most must be at least 1")
        _check_spread(self.spread)
        _check_most("most", self.most)

    def draw(self, rng: random.Random) -> int:
        mean = TOKENS_PER_WORD * rng.choice(DOCUMENT_WORDS)
        return Lognormal(mean, self.spread, min(4, self.most), self.most).draw(rng)


@dataclass(frozen=True)
class Queries(Lengths):
    """What is searched for there."""

    most: int = 512
    spread: float = 0.5
    """standard deviation of the logarithm."""

    def __post_init__(self) -> None:
        _check(self.most >= 1, "most must be at least 1")
        _check_spread(self.spread)
        _check_most("most", self.most)

    def draw(self, rng: random.Random) -> int:
        mean = TOKENS_PER_WORD * rng.choice(QUERY_WORDS)
        return Lognormal(mean, self.spread, min(4, self.most), self.most).draw(rng)


class Nothing(Lengths):
    """No tokens."""

    def draw(self, rng: random.Random) -> int:
        return 0

    def __str__(self) -> str:
        return "0"


KINDS: dict[str, type[Lengths]] = {
    kind.__name__.lower(): kind for kind in (Fixed, Uniform, Lognormal, Bimodal, Documents, Queries)
}
FORMS = "a number of tokens, " + ", ".join(
    ":".join([name, *(f.name.upper() for f in fields(kind))])  # type: ignore[arg-type]
    for name, kind in KINDS.items()
    if name != "fixed"
)


def parse_lengths(text: object) -> Lengths:
    """Parses an option's text or a config file's number. Raises ValueError that names the forms."""
    if isinstance(text, Lengths):
        return text
    name, *arguments = str(text).strip().split(":")
    if not arguments and name.isdecimal():
        return Fixed(int(name))
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"unknown lengths {text!r}; expected {FORMS}{did_you_mean(name, KINDS)}")
    try:
        return kind(**_arguments(kind, arguments))
    except (TypeError, ValueError) as error:
        raise ValueError(f"cannot read the lengths {text!r}: {error}; expected {FORMS}") from None


LengthsOption = Annotated[Lengths, BeforeValidator(parse_lengths)]
"""A field of a pydantic model that is given as above."""
OutputOption = Annotated[Lengths, BeforeValidator(lambda text: _parse_output(text))]
"""The same, and 0 for requests that generate nothing."""


def _parse_output(text: object) -> Lengths:
    return Nothing() if str(text).strip() == "0" else parse_lengths(text)


def _arguments(kind: type[Lengths], given: list[str]) -> dict[str, float]:
    known = {f.name: f.type for f in fields(kind)}  # type: ignore[arg-type]
    arguments: dict[str, float] = {}
    for place, argument in enumerate(given):
        name, named, value = argument.rpartition("=")
        if not named:
            _check(place < len(known), f"at most {len(known)} values")
            name = list(known)[place]
        _check(name in known, f"there is no {name!r}{did_you_mean(name, known)}")
        arguments[name] = int(value) if known[name] == "int" else float(value)
    return arguments


def _check_most(name: str, tokens: float) -> None:
    _check(tokens <= MOST, f"{name} must be at most {MOST:,}")


def _check_spread(spread: float) -> None:
    _check(0 <= spread <= 100, "spread must be 0 to 100")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
