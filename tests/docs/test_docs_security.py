"""SECURITY.md: each claim names tests, and they are there."""

from __future__ import annotations

import re

from documents import ROOT, Document, code, rows

PAGE = Document(ROOT / "SECURITY.md")
CLAIMS = PAGE.section("What a client cannot do")


def test_every_test_that_it_names_is_there() -> None:
    named = re.findall(r"`(tests/[^`]+)`", PAGE.text)
    assert named and not [path for path in named if not (ROOT / path).exists()]


def test_every_claim_about_clients_names_tests() -> None:
    claims = rows(CLAIMS)
    assert len(claims) > 20
    assert not [claim for claim, tests in claims if not all(t.startswith("tests/") for t in code(tests))]
    assert not [claim for claim, tests in claims if not code(tests)]


def test_every_other_paragraph_names_tests() -> None:
    prose = [part for part in CLAIMS.split("\n\n")[1:] if not part.lstrip().startswith(("|", "#", "Each"))]
    assert not [part for part in prose if part.strip() and "`tests/" not in part]
