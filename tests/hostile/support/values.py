"""Values and bodies that a client could send to an endpoint, made from the endpoint's own types."""

from __future__ import annotations

import copy
import json
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel

__all__ = ["Body", "anything", "bodies", "encoded", "mostly", "mutated"]

Body = dict[str, Any]

HUGE = 10**400
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", "\0", "\ud800", "\udfff\ud800", "\u202e", "\ufeff", "a" * 5000, "🙂" * 300, "{{ x }}"]
    ),
    st.sampled_from(["never", "auto", "none", "text", "json_object", "greedy", "beam", "user", "<|im_end|>"]),
)
"""Some of it no Unicode, some of it what fields have names for."""
INTEGERS = st.one_of(
    st.integers(0, 4),
    st.integers(-3, 40),
    st.sampled_from([-(2**63), 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, HUGE, -HUGE]),
)
FLOATS = st.one_of(
    st.floats(0, 2),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 5e-324, 1e308, -1e308, 2.0000000000000004]),
)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, FLOATS, TEXTS)
KEYS = st.one_of(TEXTS, st.integers(-3, 2**40).map(str))


def _deep(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


anything: SearchStrategy[Any] = st.one_of(
    SCALARS,
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
        max_leaves=12,
    ),
    st.sampled_from([30, 70, 400]).map(_deep),
    st.builds(lambda value, count: [value] * count, SCALARS, st.sampled_from([100, 3000])),
    st.sampled_from([200, 3000]).map(lambda count: {str(key): 1 for key in range(count)}),
)
"""Any JSON, deep, wide, or not quite JSON."""


def mostly(usual: SearchStrategy[Any], rare: SearchStrategy[Any], of: int) -> SearchStrategy[Any]:
    """`rare` once in so many; `st.one_of` would choose among the alternatives of both alike."""
    return st.integers(1, of).flatmap(lambda number: rare if number == of else usual)


def fitting(annotation: Any) -> SearchStrategy[Any]:
    """Values of a field's type, whether or not they are in its range."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return fitting(arguments[0])
    if origin in (Union, types.UnionType):
        return st.one_of(*(fitting(argument) for argument in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is list:
        return st.lists(fitting(arguments[0]), max_size=4)
    if origin in (dict, Mapping):
        return st.dictionaries(KEYS, fitting(arguments[1]), max_size=4)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return fields(annotation)
    simple = {bool: st.booleans(), int: INTEGERS, float: FLOATS | INTEGERS, str: TEXTS, type(None): st.none()}
    return simple.get(annotation, anything)


def fields(model: type[BaseModel], some: int = 3) -> SearchStrategy[Body]:
    """A few fields of a model, most with values of the right type, and sometimes fields that it lacks."""
    named = {
        name: mostly(fitting(field.annotation), anything, of=6) for name, field in model.model_fields.items()
    }
    known = st.lists(st.sampled_from(sorted(named)), max_size=some, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: named[name] for name in names})
    )
    unknown = mostly(st.just({}), st.dictionaries(KEYS, anything, max_size=2), of=8)
    return st.builds(lambda one, other: {**other, **one}, known, unknown)


def bodies(model: type[BaseModel], valid: Body) -> SearchStrategy[Body]:
    """A valid body, with some fields set to other values or taken away; sometimes no object at all."""
    changed = st.builds(
        lambda change, missing: {
            name: value for name, value in {**valid, **change}.items() if name != missing
        },
        fields(model, some=4),
        mostly(st.none(), st.sampled_from(sorted(valid.keys() - {"max_tokens"})), of=12),
    )
    return mostly(changed, anything, of=20)


@st.composite
def mutated(draw: st.DrawFn, body: Body) -> Body:
    """A body with a few of its values, at any depth, replaced, repeated or taken away."""
    changed = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(changed))
        if places:
            inside, key = draw(st.sampled_from(places))
            change = draw(st.sampled_from(["replace"] * 4 + ["repeat", "delete"]))
            if change == "delete":
                del inside[key]
            elif change == "repeat":
                inside[key] = [inside[key]] * draw(st.sampled_from([0, 1, 2, 40]))
            else:
                inside[key] = draw(anything)
    return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each value within `value`: the list or object that holds it, and its place there."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs)[:100]:
        yield value, key
        yield from _places(inner)


def encoded(body: object) -> bytes:
    """JSON as careless libraries write it: with NaN, halves of surrogate pairs and integers of any size."""
    return json.dumps(body).encode()
