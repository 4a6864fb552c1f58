"""YAML without surprises: PyYAML takes the last of two equal keys, ``010`` for 8 and ``1:30`` for 90."""

from __future__ import annotations

import re
from typing import Any

import yaml

__all__ = ["load_yaml"]

AMBIGUOUS = re.compile(r"[-+]?(0[0-7_]+|[0-9_]+(:[0-9_.]+)+)")
"""Numbers of YAML 1.1 to the base 8 or 60, which its later versions read otherwise."""
MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        if AMBIGUOUS.fullmatch(node.value):
            raise yaml.MarkedYAMLError(
                problem=f"{node.value} is no decimal number, since it has a leading 0 or a ':'; write a "
                "decimal number, or put it in quotes to make it a text",
                problem_mark=node.start_mark,
            )
        kind = node.tag.rpartition(":")[2]
        return self.construct_yaml_int(node) if kind == "int" else self.construct_yaml_float(node)


for tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
    _Loader.add_constructor(tag, _Loader.construct_number)


def load_yaml(text: str) -> Any:
    """As `yaml.safe_load`. Raises YAMLError, with the line, for a key that stands twice in a mapping, and
    for a number to the base 8 or 60."""
    return yaml.load(text, _Loader)  # a SafeLoader
