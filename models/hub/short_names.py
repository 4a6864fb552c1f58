"""Which owners on the hub a bare model name may belong to. Data; add a line for a new family."""

from __future__ import annotations

__all__ = ["likely_repositories"]

# Start of the name, in lower case, and who publishes the models called so.
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
    """``Qwen2.5-0.5B`` to ``["Qwen/Qwen2.5-0.5B"]``; empty for a name of no known pattern."""
    return [f"{owner}/{name}" for start, owner in OWNERS if name.lower().startswith(start)]
