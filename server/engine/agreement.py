"""Whether engines go together: only those that give the same tokens may take over each other's requests."""

from __future__ import annotations

from turnout.core.types.messages import Ready

__all__ = ["difference"]


def difference(one: Ready, other: Ready) -> str | None:
    """What `other` has that `one` has not, as a clause after "its engine"; None if they go together."""
    for what, mine in one.identity.items():
        theirs = other.identity.get(what, mine)
        if mine and theirs and mine != theirs:
            names = f" ({other.model!r} and {one.model!r})" if what == "model" else ""
            return f"has another {what}: {theirs}, where the others have {mine}{names}"
    if one.vocab_size != other.vocab_size:
        return f"has a vocabulary of {other.vocab_size:,} tokens, where the others have {one.vocab_size:,}"
    return None
