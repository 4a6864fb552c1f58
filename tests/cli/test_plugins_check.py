"""What `turnout plugins check` says: a plugin conforms only if all that applies to it was tested."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from turnout.cli.main import cli


def check(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["plugins", "check", *arguments])


def test_all_that_applies_was_tested() -> None:
    done = check("router/session-affinity")
    assert done.exit_code == 0
    assert done.stdout.endswith("conforms: 8 passed\n")


def test_what_does_not_apply_is_no_gap() -> None:
    done = check("router/least-loaded")
    assert done.exit_code == 0
    assert "not for it  the load is ignored unless the router watches it: the router watches" in done.stdout
    assert done.stdout.endswith("conforms: 7 passed, 1 do not apply\n")


def test_what_was_skipped_is_not_shown_to_conform() -> None:
    """Most of a family's tests need a small model's configuration."""
    done = check("model/qwen2")
    assert done.exit_code == 1
    assert (
        "skipped     chunks give the same logits: no small model's config is given (`config`)" in done.stdout
    )
    assert "not shown to conform: 3 passed, 7 skipped, which apply, 1 do not apply\n" in done.stdout
    assert check("model/qwen2", "--allow-skipped").exit_code == 0


@pytest.mark.parametrize("flags", [(), ("--allow-skipped",)])
def test_a_failure_is_a_failure(flags: tuple[str, ...]) -> None:
    done = check("router/round-robin", "--claim", "trials=none", *flags)
    assert done.exit_code == 1
    assert "does not conform: " in done.stdout and "FAILED      " in done.stdout


def test_in_json() -> None:
    report = json.loads(check("model/qwen2", "--json").stdout)
    assert report["conforms"] is False and report["verdict"].startswith("not shown to conform")
    assert {finding["state"] for finding in report["findings"]} == {"ok", "skipped", "not for it"}
