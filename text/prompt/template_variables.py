"""Variables that clients and scripts give to chat templates: `chat_template_kwargs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from turnout.core.errors import RequestError

__all__ = ["check_not_reserved", "given_variables"]

FIELD = "chat_template_kwargs"
RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "documents",
        "messages",
        "self",
        "tools",
    }
)
"""Variables that have fields of their own, or none; `Tokenizer.chat_text` takes most."""


def check_not_reserved(names: Iterable[str]) -> None:
    """Raises ValueError for a variable that cannot be given."""
    if reserved := RESERVED.intersection(names):
        raise ValueError(f"{min(reserved)!r} cannot be given here")


def given_variables(given: object) -> dict[str, Any]:
    """The variables that a script gives. Raises RequestError for what is none."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise RequestError(
            f"{FIELD} are variables by their names, such as {{'enable_thinking': False}}, not {given!r:.80}",
            FIELD,
        )
    try:
        check_not_reserved(given)
    except ValueError as error:
        raise RequestError(f"{FIELD}: {error}", FIELD) from None
    return dict(given)
