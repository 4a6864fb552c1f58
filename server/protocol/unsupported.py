"""Parameters of the OpenAI API, and of vLLM's, that would change the answer but are not served.

They are refused by name: an answer that silently ignores them would be wrong.
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
"""By name, the values that ask for nothing; None never does."""


def refuse_unsupported(fields: Mapping[str, Any]) -> None:
    """Raises RequestError that names the first parameter that is not served."""
    for name, value in fields.items():
        if name in HARMLESS and value is not None and value not in HARMLESS[name]:
            raise RequestError(f"{name} is not supported", name)
