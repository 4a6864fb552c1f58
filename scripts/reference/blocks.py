"""The blocks of a page that the code writes: where they begin and end, and what is left without them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"

Blocks = Mapping[str, Callable[[], str]]
"""What writes a block, by the block's name."""

_BLOCK = re.compile(
    r"(<!-- written by scripts/write_reference\.py: ([\w -]+) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL
)
_MEASURED = re.compile(r"<!-- ([\w-]+): begin -->\n.*?<!-- \1: end -->\n", re.DOTALL)
"""Tables of benchmarks, by `turnout.lab.results.markdown.write_marked`."""


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def names(text: str) -> list[str]:
    """Of the blocks in a page, in their order."""
    return [match[2] for match in _BLOCK.finditer(text)]


def written(text: str, blocks: Blocks) -> str:
    """A page with its blocks as the code has them. Raises LookupError for a block that nothing writes."""

    def block(match: re.Match[str]) -> str:
        if match[2] not in blocks:
            raise LookupError(f"no block is called {match[2]!r}; known: {', '.join(blocks)}")
        return f"{match[1]}\n{blocks[match[2]]().strip()}\n\n{match[4]}"

    return _BLOCK.sub(block, text)


def by_hand(text: str) -> str:
    """What people wrote of a page: all but its blocks, and tables of benchmarks."""
    return _MEASURED.sub("", _BLOCK.sub("", text))
