"""Every kernel becomes machine code for cards that are not there, as Triton's interpreter cannot tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "compile_kernels.py"


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "89", "90"])
def test_for_each_generation_of_cards(capability: str) -> None:
    """It fails, too, where one takes more shared memory than there is, or too many registers."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, SCRIPT, "--capability", capability]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert {line.partition(":")[0] for line in done.stdout.splitlines()} == {
        "layers",
        "writes",
        "attention",
        "products",
        "sampling",
    }
