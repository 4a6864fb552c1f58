"""docs/how-to/troubleshoot.md quotes messages as the code says them."""

from __future__ import annotations

import re
from functools import cache

import pytest
from documents import ROOT, TROUBLESHOOTING

ROOMS = ("cli", "core", "models", "runner", "server", "text", "plugins", "kernels")


FROM_THE_SYSTEM = ": Address already in use"


@cache
def source() -> str:
    """All code, with string literals that continue on the next line put together."""
    files = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def quotations() -> list[str]:
    """What stands in bold and in backticks, or in italics: a message, with … for what varies."""
    bold = re.findall(r"\*\*(.+?)\*\*", TROUBLESHOOTING.prose, re.DOTALL)
    found = [quotation for part in bold for quotation in re.findall(r"`([^`]+)`", part)]
    found += re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", TROUBLESHOOTING.prose)
    return [" ".join(quotation.split()) for quotation in found if " " in quotation]


def test_there_are_quotations() -> None:
    assert len(quotations()) > 15


@pytest.mark.parametrize("quotation", quotations())
def test_a_message_is_said_somewhere(quotation: str) -> None:
    pieces = [piece.strip(" '") for piece in quotation.removesuffix(FROM_THE_SYSTEM).split("…")]
    pieces = [piece for piece in pieces if len(piece) > 3]
    assert pieces and all(piece in source() for piece in pieces), pieces
