"""What a model's folder has to be put in front of texts that are pooled, by its name there."""

from __future__ import annotations

from turnout.core.errors import RequestError
from turnout.core.types.pooling import PoolingFacts

__all__ = ["prompt_named"]

SAME = {
    "search_query": ("query",),
    "search_document": ("document", "passage"),
    "query": (),
    "document": ("passage",),
    "passage": ("document",),
}
"""Other names of the prompt for a type of input."""


def prompt_named(
    facts: PoolingFacts, name: str | None, kind: str | None = None, field: str = "prompt_name"
) -> str:
    """Returns what is put in front of texts. Raises RequestError for a name that the model does not have.

    kind: the type of input, which a model without such a prompt ignores; field: where the client has `name`.
    """
    if name is not None:
        if name not in facts.prompts:
            known = ", ".join(sorted(facts.prompts)) or "it has none"
            raise RequestError(f"the model has no prompt {name[:40]!r}; known: {known}", field)
        return facts.prompts[name]
    wanted = (kind, *SAME.get(kind, ())) if kind else ()
    found = next((each for each in wanted if each in facts.prompts), facts.default_prompt)
    return facts.prompts.get(found, "") if found else ""
