"""Every kernel becomes machine code for cards that are not there, as Triton's interpreter cannot tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "compile_kernels.py"


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "89", "90"])
def test_for_each_generation_of_cards(capability: str) -> None:
    """It fails, too, where one takes more shared memory than there is, or too many registers."""
    assert set(compiled("--capability", capability)) == {
        "layers",
        "writes",
        "attention",
        "rarer attention",
        "attention by rules",
        "products",
        "experts",
        "sampling",
    }


@pytest.mark.slow
def test_attention_has_copies_on_their_way_while_it_computes() -> None:
    """Of what is most common alone, which is compiled in seconds. What is slow fails no other test."""
    attends = [line for line in compiled("attention")["attention"] if line.startswith("attend, ")]
    assert len(attends) == 4
    assert all("copies ahead" in line and " 0 copies ahead" not in line for line in attends)


def compiled(*arguments: str) -> dict[str, list[str]]:
    """What the script says of each kernel, by part."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        part, _, said = line.partition(": ")
        lines.setdefault(part, []).append(said)
    return lines
