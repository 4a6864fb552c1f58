"""YAML in which no key stands twice: PyYAML takes the last one without a word."""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["load_yaml"]

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


def load_yaml(text: str) -> Any:
    """As `yaml.safe_load`. Raises YAMLError, with the line, for a key that stands twice in a mapping."""
    return yaml.load(text, _Loader)  # a SafeLoader
