"""The requests that an engine has begun with, in a file that outlives the engine's process."""

from __future__ import annotations

import os
import tempfile
from typing import Self

__all__ = ["HEADER", "BegunFile"]

HEADER = b"begun\n"
"""The first line of a file that can be relied on."""


class BegunFile:
    """Lines that the engine writes: ``+ID`` when it begins with a request, ``-ID`` when that only waits."""

    def __init__(self) -> None:
        """Raises OSError if the system has no room for it."""
        self._file = tempfile.TemporaryFile(prefix="turnout-begun-", buffering=0)  # noqa: SIM115

    @property
    def fd(self) -> int:
        """To be inherited by the engine's process."""
        return self._file.fileno()

    def read(self) -> tuple[str, ...] | None:
        """The ids in the order in which the engine began with them; None if it could not say."""
        content = os.pread(self.fd, os.fstat(self.fd).st_size, 0)
        if not content.startswith(HEADER):
            return None
        begun: dict[str, None] = {}
        for line in content.removeprefix(HEADER).decode().splitlines():
            sign, id = line[0], line[1:]
            begun.pop(id, None)
            if sign == "+":
                begun[id] = None
        return tuple(begun)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
