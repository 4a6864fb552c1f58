"""What an engine says as it fails: a line to its clients, and to the log a traceback where one helps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from turnout.core.errors import ModelError, NoRoom, PolicyError, as_no_room, as_plugin_errors
from turnout.server.engine.main import _explain


def theirs() -> Exception:
    with pytest.raises(Exception, match="theirs failed") as caught, as_plugin_errors("theirs"):
        raise KeyError("what")
    return caught.value


@pytest.mark.parametrize(
    ("error", "told", "logged"),
    [
        (ModelError("config.json is missing"), "config.json is missing", False),
        (PolicyError("gave up block 9"), "gave up block 9", False),
        (OSError("no space"), "OSError: no space", True),
        (theirs(), "theirs failed: KeyError: 'what'", True),
    ],
    ids=["ours", "a wrong answer", "anybody's", "a plugin's"],
)
def test_what_others_raised_is_logged_with_its_line(
    error: Exception, told: str, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a plugin's exception its author needs the line, which was in no log."""
    with caplog.at_level(logging.ERROR):
        assert _explain(error) == told
    assert any(record.exc_info for record in caplog.records) == logged
    assert ('raise KeyError("what")' in caplog.text) == (told[:6] == "theirs")


@pytest.mark.parametrize("blame", [as_plugin_errors, as_no_room])
@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 2.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes."),
        OSError(12, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
    ids=["Python's", "torch's", "the system's", "a library's"],
)
def test_too_little_memory_is_no_fault_of_a_plugin(
    blame: Callable[[str], AbstractContextManager[None]], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Under `ulimit -v` it was a PluginError with a traceback."""
    with (
        pytest.raises(NoRoom, match=r"^theirs got too little memory \(.*`ulimit -v`\)$") as caught,
        blame("theirs"),
    ):
        raise error
    assert _explain(caught.value) == str(caught.value)
    assert not caplog.records


@pytest.mark.parametrize("blame", [as_plugin_errors, as_no_room])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        BlockingIOError(11, "Resource temporarily unavailable"),
        ValueError("Resource temporarily unavailable (os error 11)"),
    ],
    ids=["Python's", "the system's", "Rust's"],
)
def test_too_few_threads_are_no_fault_of_a_plugin(
    blame: Callable[[str], AbstractContextManager[None]], error: Exception
) -> None:
    """Under a container's limit of pids it was a PluginError, or a traceback of asyncio."""
    told = r"^theirs could start no further thread or process \(.*`ulimit -u`.*\)$"
    with pytest.raises(NoRoom, match=told), blame("theirs"):
        raise error


class Full(BlockingIOError):
    """Of a standard output that does not wait for its reader."""

    characters_written = 3


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), ModelError("config.json is missing"), Full(11, "would block")]
)
def test_other_errors_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, as_no_room("the engine"):
        raise error
    assert caught.value is error
