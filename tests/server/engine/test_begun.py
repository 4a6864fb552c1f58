"""The file that tells, after an engine's death, with which requests the engine had begun."""

from __future__ import annotations

import os

import pytest

from turnout.plugins.launchers.begun_file import BegunFile
from turnout.server.engine import begun
from turnout.server.engine.begun import BegunLog


def test_those_that_were_begun_are_read_in_their_order() -> None:
    with BegunFile() as file:
        assert file.read() is None, "the engine has not come so far"
        log = BegunLog(file.fd, list)
        assert file.read() == ()
        for id in ("a", "b", "c"):
            log.begin(id)
            log.withdraw(id)
        for id in ("c", "a"):
            log.begin(id)
        assert file.read() == ("c", "a")


def test_a_long_file_is_written_anew_with_those_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begun, "MOST_BYTES", 100)
    with BegunFile() as file:
        log = BegunLog(file.fd, lambda: ["r97", "r98"])
        for number in range(100):
            log.begin(f"r{number}")
        assert os.fstat(file.fd).st_size < 200
        read = file.read()
        assert read is not None and read[-1] == "r99" and "r3" not in read


def test_a_file_that_cannot_be_written_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk, all requests are suspects, rather than the wrong ones."""

    def full(fd: int, line: bytes) -> int:
        raise OSError(28, "No space left on device")

    with BegunFile() as file:
        log = BegunLog(file.fd, list)
        log.begin("a")
        monkeypatch.setattr(os, "write", full)
        log.begin("b")
        monkeypatch.undo()
        log.begin("c")
        assert file.read() is None
