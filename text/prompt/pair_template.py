"""Pairs of texts as one text: rerankers that are decoders read them by a chat template.

sentence-transformers gives the template a message of the role ``query``, one of the role ``document``, and an
instruction as the system's message. What a template writes around them is found once, by texts that nothing
else holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnout.core.errors import ModelError, RequestError
from turnout.core.types.pooling import PairTemplate
from turnout.text.chat_template import ChatTemplate

__all__ = ["names_pairs", "pair_text", "read_pair_template"]

ROLES = ("query", "document")
MARKS = {role: f" <|turnout-{role}|> " for role in ("system", *ROLES)}
"""Their spaces show whether a template trims texts."""


def names_pairs(source: str) -> bool:
    """Says whether a template speaks of the two roles of a pair."""
    return all(f'"{role}"' in source or f"'{role}'" in source for role in ROLES)


def read_pair_template(template: ChatTemplate, options: Mapping[str, Any]) -> PairTemplate:
    """Returns what a template writes around pairs. Raises ModelError where it does not write both texts."""
    plain = _around(template, ROLES, options)
    if plain is None:
        raise ModelError(
            "the chat template does not write the text of a `query` and after it that of a `document`, each "
            "once and unchanged, which scores of pairs need; give one that does with --chat-template"
        )
    instructed = _around(template, ("system", *ROLES), options)
    return PairTemplate(
        (plain[0], plain[1], plain[2]),
        None if instructed is None else (instructed[0], instructed[1], instructed[2], instructed[3]),
    )


def pair_text(template: PairTemplate, first: str, second: str, instruction: str = "") -> tuple[str, str]:
    """Returns a pair as one text, but for its end, and the end, which follows the second text.

    Raises RequestError for an instruction that the template does not write.
    """
    if not instruction:
        before, between, after = template.plain
        return f"{before}{first}{between}{second}", after
    if template.instructed is None:
        raise RequestError("the model's chat template takes no instruction; leave it out", "instruction")
    start, before, between, after = template.instructed
    return f"{start}{instruction}{before}{first}{between}{second}", after


def _around(template: ChatTemplate, roles: Sequence[str], options: Mapping[str, Any]) -> list[str] | None:
    """Returns what a template writes before, between and after texts of these roles.

    None: it does not write each once, as it is and in this order.
    """
    for wrapped in (False, True):  # newer templates read lists of parts
        chat = [{"role": role, "content": _content(MARKS[role], wrapped)} for role in roles]
        try:
            rest = template.render(chat, **{"add_generation_prompt": False, **options})
        except RequestError:
            continue
        if all(MARKS[role].strip() in rest for role in roles):
            return _split(rest, roles)
    return None


def _split(text: str, roles: Sequence[str]) -> list[str] | None:
    parts = []
    for role in roles:
        before, found, text = text.partition(MARKS[role])
        if not found:
            return None
        parts.append(before)
    return None if any(mark.strip() in text for mark in MARKS.values()) else [*parts, text]


def _content(text: str, wrapped: bool) -> Any:
    return [{"type": "text", "text": text}] if wrapped else text
