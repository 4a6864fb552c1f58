"""Traces in JSON lines: Mooncake's and Qwen-Bailian's. Turnout's own are in `turnout_format`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from turnout.lab.jobs.job import Job
from turnout.lab.traces.entry import TraceEntry

__all__ = ["JSONL_FORMS", "MOONCAKE_BLOCK", "QWEN_BLOCK"]

MOONCAKE_BLOCK = 512
QWEN_BLOCK = 16


def _mooncake(entries: Iterable[TraceEntry]) -> Iterator[Job]:
    """Mooncake (Qin et al. 2024). Times are in milliseconds.

    `hash_ids` name blocks of 512 tokens, by the hash of all tokens up to their end.
    """
    for entry in entries:
        yield _job(entry, entry.number("timestamp") / 1000, MOONCAKE_BLOCK)


def _bailian(entries: Iterable[TraceEntry]) -> Iterator[Job]:
    """Qwen-Bailian (Wang et al. 2025). Times are in seconds.

    `hash_ids` name blocks of 16 tokens. Chats, which name the turn before, are sessions.
    """
    roots: dict[str, str] = {}
    for entry in entries:
        chat, parent = entry.text("chat_id"), entry.text("parent_chat_id")
        # A parent may lie before the trace's beginning: then its name stands for the session.
        roots[chat] = chat if parent == "-1" else roots.get(parent, parent)
        yield _job(entry, entry.number("timestamp"), QWEN_BLOCK, session=roots[chat])


def _job(entry: TraceEntry, at: float, block: int, **more: Any) -> Job:
    blocks = entry.names("hash_ids")
    prompt = entry.tokens("input_length")
    if len(blocks) > -(-prompt // block):
        raise entry.fault(f"{len(blocks)} blocks of {block} tokens are more than 'input_length': {prompt}")
    return Job(at, prompt, entry.tokens("output_length"), blocks, block if blocks else 0, **more)


class JsonLinesForm(NamedTuple):
    name: str
    """As messages name it."""
    fields: tuple[str, ...]
    """Fields that the first entry must have; there may be others."""
    read: Callable[[Iterable[TraceEntry]], Iterator[Job]]


JSONL_FORMS = (
    JsonLinesForm("Qwen-Bailian JSONL", ("chat_id", "parent_chat_id", "timestamp", "input_length"), _bailian),
    JsonLinesForm("Mooncake JSONL", ("timestamp", "input_length", "output_length"), _mooncake),
)
"""The first form whose fields the first entry has is the trace's."""
