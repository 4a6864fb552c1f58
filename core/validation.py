"""Explains pydantic's validation errors: which option, what was expected, what was given."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import ValidationError

from turnout.core.errors import did_you_mean, shortened

__all__ = ["explain_validation_error"]


_AS_JSON = {
    "list_type": "[1, 2]",
    "tuple_type": "[1, 2]",
    "set_type": "[1, 2]",
    "frozen_set_type": "[1, 2]",
    "dict_type": '{"a": 1}',
    "mapping_type": '{"a": 1}',
}
"""How text gives the types that pydantic misses, by the kind of its error."""


def explain_validation_error(
    error: ValidationError, known: Collection[str], secret: Collection[str] = ()
) -> str:
    """Returns a line for each problem. `known`: the valid options; `secret`: those whose values are not
    shown."""
    return "\n".join(_explained(dict(problem), known, secret) for problem in error.errors())


def _explained(problem: dict[str, object], known: Collection[str], secret: Collection[str]) -> str:
    loc, message = problem["loc"], str(problem["msg"]).removeprefix("Value error, ")
    assert isinstance(loc, tuple)
    if not loc:  # of several options together
        return message
    name = ".".join(map(str, loc))
    if problem["type"] == "extra_forbidden":
        valid = f"known: {', '.join(known)}" if known else "it takes no options"
        return f"unknown option {shortened(name)}; {valid}{did_you_mean(name, known)}"
    if problem["type"] == "missing":
        return f"the option {name!r} must be given"
    if loc[0] in secret:
        return f"{name}: {message}"
    if isinstance(problem["input"], str) and problem["type"] in _AS_JSON:
        message += f", in JSON, such as {_AS_JSON[problem['type']]}"
    return f"{name}: {message} (given: {shortened(problem['input'])})"
