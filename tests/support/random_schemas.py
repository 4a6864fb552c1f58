"""Random JSON schemas, all of which some value of bounded size satisfies."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

NAMES = ["name", "a b", "名字", 'quo"te', "back\\slash", "ключ", "x" * 30, "🙂", "line\nbreak", "0", ""]
PATTERNS = [r"^[a-z]{2,5}$", r"^\d{3}-\d{4}$", r"^(foo|bar)[A-Z]?$", "^你好.?$", r"^\w{1,4}@[a-z]{2}\.com$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4"]
CONSTANTS: list[Any] = [None, True, 0, -7, 2.5, "", "text", "中文", 'a"b\\c\n', [1, "2"], {"k": [None]}]


def random_schema(seed: int) -> Schema:
    """The seed-th. It may refer to definitions of its own, itself among them."""
    rng = random.Random(seed)
    schema = _schema(rng, depth=3)
    if rng.random() < 0.2:
        node = {"type": "object", "required": ["value"], "additionalProperties": False}
        node["properties"] = {
            "value": schema,
            "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
        }
        schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    return schema


def _schema(rng: random.Random, depth: int) -> Schema:
    kinds: list[Callable[[random.Random, int], Schema]] = [_string, _integer, _number, _fixed, _simple]
    if depth:
        kinds += [_object, _object, _array, _array, _union]
    return rng.choice(kinds)(rng, depth - 1)


def _string(rng: random.Random, depth: int) -> Schema:
    kind = rng.randrange(3)
    if kind == 0:
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": rng.choice(FORMATS)}
    low = rng.randrange(4)
    return {"type": "string", "minLength": low, "maxLength": low + rng.randrange(12)}


def _integer(rng: random.Random, depth: int) -> Schema:
    low = rng.randrange(-2000, 2000)
    high = low + rng.choice([0, 1, 9, 1000])
    schema: Schema = {"type": "integer"}
    schema["exclusiveMinimum" if rng.random() < 0.3 else "minimum"] = low
    schema["exclusiveMaximum" if rng.random() < 0.3 else "maximum"] = high + 2
    if rng.random() < 0.2:
        schema = {"type": "integer", "minimum": 0, "maximum": 500, "multipleOf": rng.choice([2, 5, 7])}
    return schema


def _number(rng: random.Random, depth: int) -> Schema:
    low = rng.uniform(-100, 100)
    return {"type": "number", "minimum": round(low, 2), "maximum": round(low + rng.uniform(1, 50), 2)}


def _fixed(rng: random.Random, depth: int) -> Schema:
    if rng.random() < 0.3:
        return {"const": rng.choice(CONSTANTS)}
    return {"enum": rng.sample(CONSTANTS, rng.randint(1, 5))}


def _simple(rng: random.Random, depth: int) -> Schema:
    return {"type": rng.choice(["boolean", "null", ["boolean", "null"]])}


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(NAMES, rng.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: _schema(rng, depth) for name in names},
        "required": [name for name in names if rng.random() < 0.6],
        "additionalProperties": False,
    }


def _array(rng: random.Random, depth: int) -> Schema:
    low = rng.randrange(3)
    schema = {
        "type": "array",
        "items": _schema(rng, depth),
        "minItems": low,
        "maxItems": low + rng.randrange(3),
    }
    if rng.random() < 0.3:
        schema["prefixItems"] = [_schema(rng, depth)]
    return schema


def _union(rng: random.Random, depth: int) -> Schema:
    kind = rng.randrange(3)
    if kind == 0:
        return {"anyOf": [_schema(rng, depth) for _ in range(rng.randint(1, 3))]}
    if kind == 1:
        return {"oneOf": [_string(rng, depth), _integer(rng, depth), {"type": "null"}]}
    tagged = [
        {"type": "object", "properties": {"kind": {"const": tag}, "of": _schema(rng, depth)}} for tag in "ab"
    ]
    return {"oneOf": [{**one, "required": ["kind"], "additionalProperties": False} for one in tagged]}
