"""Likely owners on the hub of a model name without one. To support a family, add a line to `OWNERS`."""

from __future__ import annotations

__all__ = ["likely_repositories"]

# The start of the name, in lower case, and the owner that publishes these models.
OWNERS: tuple[tuple[str, str], ...] = (
    ("qwen", "Qwen"),
    ("qwq", "Qwen"),
    ("llama-", "meta-llama"),
    ("meta-llama-", "meta-llama"),
    ("tinyllama", "TinyLlama"),
    ("smollm", "HuggingFaceTB"),
    ("mistral-", "mistralai"),
    ("deepseek-", "deepseek-ai"),
    ("yi-", "01-ai"),
    ("vicuna-", "lmsys"),
)


def likely_repositories(name: str) -> list[str]:
    """``Qwen2.5-0.5B`` gives ``["Qwen/Qwen2.5-0.5B"]``; a name of no known pattern gives an empty list."""
    return [f"{owner}/{name}" for start, owner in OWNERS if name.lower().startswith(start)]
