"""docs/reference/limits.md: every bound on what a client may send, from core/limits.py."""

from __future__ import annotations

from turnout.core.limits import all_limits
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, table


def blocks() -> Blocks:
    return {"limits": _limits}


def _limits() -> str:
    return table(
        ("what", "at most", "option", "answer"),
        [
            (limit.what, limit.amount, limit.option and code(limit.option), limit.answer)
            for limit in all_limits().values()
        ],
    )
