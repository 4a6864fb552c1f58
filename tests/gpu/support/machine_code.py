"""What Triton's own disassembler says of a compiled kernel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import triton

__all__ = ["Loop", "loops", "spilled"]

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
LEAST = 40
"""Instructions, from which on a loop is of interest."""


class Loop(NamedTuple):
    """One that jumps back to where it begins."""

    instructions: int
    ahead: int | None
    """Groups of copies from device memory that are on their way while it computes, since it waits for them in
    a later turn; None: it copies nothing."""


def spilled(binary: bytes) -> int:
    """Bytes of registers that a thread keeps in local memory, which nothing else is kept in."""
    text = _run("cuobjdump", "--dump-resource-usage", binary)
    return sum(int(size) for size in re.findall(r"(?:LOCAL|STACK):(\d+)", text))


def loops(binary: bytes) -> list[Loop]:
    """Of all of a kernel's code, in its order."""
    return [_loop(body) for body in _bodies(_run("nvdisasm", "-c", binary)) if len(body) >= LEAST]


def _bodies(text: str) -> Iterator[list[str]]:
    """From a label to a jump back to it."""
    code, labels = list[str](), dict[str, int]()
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif instruction := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            code.append(instruction[1])
            jump = re.search(r"BRA[^`]*`\((\.L_x_\d+)\)", code[-1])
            if jump and jump[1] in labels:
                yield code[labels[jump[1]] :]


def _loop(body: list[str]) -> Loop:
    waits = [int(found[1], 16) for line in body if (found := re.search(r"DEPBAR\.LE SB0, (0x\w+)", line))]
    copies = any("LDGSTS" in line for line in body)
    return Loop(len(body), min(waits, default=0) if copies else None)


def _run(tool: str, option: str, binary: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [TOOLS / tool, option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
