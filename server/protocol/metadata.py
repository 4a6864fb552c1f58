"""What a client notes of its own in a response or a batch, as OpenAI bounds it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from turnout.core import limits

__all__ = ["Notes"]


def _bounded(notes: dict[str, str]) -> dict[str, str]:
    if len(notes) > limits.NOTES.most or sum(map(len, [*notes, *notes.values()])) > limits.NOTES_TEXT.most:
        most, text = limits.NOTES.whole, limits.NOTES_TEXT.whole
        raise ValueError(f"at most {most} pairs are expected, of {text:,} characters together")
    return notes


Notes = Annotated[dict[str, str], AfterValidator(_bounded)]
"""Pairs of names and texts, which are kept and given back."""
