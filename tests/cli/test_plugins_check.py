"""What `turnout plugins check` says: a plugin conforms only if all that applies to it was tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from turnout.cli.main import cli
from turnout.models.random.shapes import Shape, config_of


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
    assert "not shown to conform: 3 passed, 8 skipped, which apply, 1 do not apply\n" in done.stdout
    assert check("model/qwen2", "--allow-skipped").exit_code == 0


def small(folder: Path, **keys: object) -> str:
    """A file with a small model's configuration."""
    config = config_of(Shape(32, 2, 4, 2, 48, 64, max_positions=128), "qwen2")
    file = folder / "small.json"
    file.write_text(json.dumps({**config, **keys}))
    return str(file)


def test_a_family_is_checked_with_a_model_of_its_config(tmp_path: Path) -> None:
    """transformers writes a checkpoint of it, whose logits the family must give."""
    done = check("model/qwen2", "--model-config", small(tmp_path))
    assert "ok          a checkpoint of transformers gives its logits" in done.stdout
    assert done.exit_code == 0, done.stdout


def test_a_large_config_is_refused_with_what_to_change(tmp_path: Path) -> None:
    done = check("model/qwen2", "--model-config", small(tmp_path, hidden_size=8192, vocab_size=150_000))
    assert done.exit_code == 2
    assert "describes too large a model for the tests (2 layers of 8192, 150,000 tokens)" in done.stderr


def test_a_config_is_for_families_alone(tmp_path: Path) -> None:
    done = check("router/least-loaded", "--model-config", small(tmp_path))
    assert done.exit_code == 2
    assert "--model-config is for model families; least-loaded is of the kind router" in done.stderr


@pytest.mark.parametrize("flags", [(), ("--allow-skipped",)])
def test_a_failure_is_a_failure(flags: tuple[str, ...]) -> None:
    done = check("router/round-robin", "--claim", "trials=none", *flags)
    assert done.exit_code == 1
    assert "does not conform: " in done.stdout and "FAILED      " in done.stdout


def test_in_json() -> None:
    report = json.loads(check("model/qwen2", "--json").stdout)
    assert report["conforms"] is False and report["verdict"].startswith("not shown to conform")
    assert {finding["state"] for finding in report["findings"]} == {"ok", "skipped", "not for it"}
