"""What an engine says as it fails: a line to its clients, and to the log a traceback where one helps."""

from __future__ import annotations

import logging

import pytest

from turnout.core.errors import ModelError, PolicyError, as_plugin_errors
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
