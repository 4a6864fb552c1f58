"""Prompts as scripts give them: texts, token ids in any container, or vLLM's dictionaries."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnout.core.errors import RequestError, map_numbered

__all__ = ["Given", "Prompt", "given_prompts", "given_texts"]

Prompt = str | list[int]
"""A text, or token ids."""
Given = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, ``{"prompt": text}`` or ``{"prompt_token_ids": ids}``."""

TEXT, IDS = "prompt", "prompt_token_ids"


def given_prompts(prompts: Given | Iterable[Given]) -> list[Prompt]:
    """A single prompt, or each of several. Raises RequestError for what is none."""
    if isinstance(prompts, str | Mapping):
        return [_prompt(prompts)]
    several = _items(prompts)
    if several and _is_token(several[0]):
        return [_ids(several)]
    return map_numbered("prompt", _prompt, several)


def given_texts(given: str | Iterable[str], name: str) -> list[str]:
    """A single text, or each of several. Raises RequestError for what is none; name: the argument's."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        raise RequestError(f"{name} is a text or a list of texts, not {type(given).__name__}", name)
    texts = list(given)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise RequestError(f"{name}[{number}] is a text, not {type(text).__name__}", name)
    return texts


def _prompt(given: Any) -> Prompt:
    if isinstance(given, str):
        return given
    return _named(given) if isinstance(given, Mapping) else _ids(_items(given))


def _named(given: Mapping[str, Any]) -> Prompt:
    """As vLLM does, the ids count where a dictionary has the text, too."""
    if unknown := given.keys() - {TEXT, IDS}:
        names = ", ".join(sorted(map(repr, unknown)))
        raise RequestError(f"a prompt has the keys {TEXT!r} and {IDS!r}, not {names}", "prompts")
    if given.get(IDS) is not None:
        return _ids(_items(given[IDS]))
    if isinstance(text := given.get(TEXT), str):
        return text
    raise _none(text)


def _items(given: Any) -> list[Any]:
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise _none(given)
    return list(given)


def _is_token(value: Any) -> bool:
    """Says whether a value is an integer of Python, NumPy or PyTorch."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and not getattr(value, "ndim", 0)


def _ids(tokens: list[Any]) -> list[int]:
    try:
        return list(map(operator.index, tokens))
    except (TypeError, ValueError):
        wrong = next(token for token in tokens if not isinstance(token, int))
        raise RequestError(f"token ids are integers, not {type(wrong).__name__}", "prompts") from None


def _none(given: object) -> RequestError:
    return RequestError(
        f"a prompt is a text, a list of token ids, {{{TEXT!r}: text}} or {{{IDS!r}: ids}}, not "
        f"{type(given).__name__}",
        "prompts",
    )
