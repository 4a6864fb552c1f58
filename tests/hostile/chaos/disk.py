"""A small disk of its own for a server's files: its log, its caches, its temporary folders."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from turnout.kernels.build import built_library

__all__ = ["SmallDisk"]

BLOCK = 2**16


class SmallDisk:
    """A file system in memory, which has room for little, and can be filled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "log"

    @classmethod
    @contextmanager
    def mounted(cls, folder: Path) -> Iterator[SmallDisk | None]:
        """None where this user may mount nothing; else there until the block is left."""
        command = ["mount", "-t", "tmpfs", "-o", "size=48m,nr_inodes=500", "turnout-chaos", str(folder)]
        try:
            mounted = not subprocess.run(command, capture_output=True).returncode
        except FileNotFoundError:
            mounted = False
        if not mounted:
            yield None
            return
        try:
            yield cls(folder)
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)

    def environment(self) -> dict[str, str]:
        """The variables by which a process keeps its files here; compiled kernels are here already."""
        temporary, cache = self._folder / "tmp", self._folder / "cache"
        temporary.mkdir()
        notes = built_library().notes
        if notes is not None and notes.exists():
            shutil.copytree(notes, cache / "turnout" / "kernels" / notes.name)
        return {**os.environ, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache)}

    def forget_notes(self) -> None:
        """Remove what the next engine will want to write."""
        for notes in self._folder.glob("cache/turnout/kernels/*/measured*"):
            notes.unlink()

    @contextmanager
    def full(self) -> Iterator[None]:
        """Nothing can be written, and no file be made, until the block is left."""
        ballast = self._folder / "ballast"
        ballast.mkdir()
        try:
            with suppress(OSError):
                for number in range(10**6):
                    (ballast / str(number)).touch()
            with suppress(OSError), (ballast / "0").open("wb", buffering=0) as file:
                while file.write(bytes(BLOCK)):
                    pass
            with suppress(OSError), (ballast / "0").open("ab", buffering=0) as file:
                while file.write(b"0"):
                    pass
            yield
        finally:
            shutil.rmtree(ballast)

    def left(self) -> list[str]:
        """What lies in the folder for temporary files."""
        return sorted(os.listdir(self._folder / "tmp"))
