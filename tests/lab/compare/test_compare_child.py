"""A process that does a part of a comparison and breaks is told of, however early it does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from turnout.core.errors import EngineError
from turnout.lab.compare.runs import child
from turnout.lab.compare.runs.protocol import QualityTask


def test_one_that_is_gone_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing to it raised BrokenPipeError, a traceback for the user of turnout compare."""

    @contextmanager
    def gone() -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-S", "-c", "raise SystemExit(3)"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.wait()
            yield process

    monkeypatch.setattr(child, "_worker", gone)
    order = QualityTask(configs=({}, {}), text="x" * 10_000, tokens=1)
    with pytest.raises(EngineError, match="arm 'b': the judge ended with code 3"):
        child.carry_out(order, "b", "the judge", lambda done, total: None)
