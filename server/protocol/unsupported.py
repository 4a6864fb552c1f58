"""Refuses parameters of OpenAI's and vLLM's APIs that would change the response but are not supported.

A response that silently ignored them would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout.core.errors import RequestError

__all__ = ["refuse_unsupported"]

HARMLESS: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "chat_template": (),
    "documents": ([],),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "guided_whitespace_pattern": (),
    "logits_processors": ([],),
    "modalities": (["text"],),
    "prediction": (),
    "prompt_embeds": (),
    "reasoning_effort": ("none",),
    "return_tokens_as_token_ids": (False,),
    "spaces_between_special_tokens": (True,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "truncate_prompt_tokens": (),
    "web_search_options": (),
}
"""For each unsupported parameter, the values that ask for nothing and so are accepted; None always is."""


def refuse_unsupported(fields: Mapping[str, Any]) -> None:
    """Raise RequestError that names the first unsupported parameter."""
    for name, value in fields.items():
        if name in HARMLESS and value is not None and value not in HARMLESS[name]:
            raise RequestError(f"{name} is not supported", name)
