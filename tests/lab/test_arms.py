"""``--arm NAME:field=value,…``: what an arm changes, over what is common to all."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.lab.arms import Arm, check_arms, parse_arms


def one(text: str, **common: object) -> Arm:
    (arm,) = parse_arms([text], EngineConfig(**common))
    return arm


def refusal(*texts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check_arms(parse_arms(texts, EngineConfig()))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "name", "changes"),
    [
        ("base", "base", {}),
        ("long:scheduler=ljf", "long", {"scheduler": "ljf"}),
        ("long:scheduler=ljf:aging=2", "long", {"scheduler": "ljf:aging=2"}),
        (
            'x:scheduler="ljf:aging=2,limit=3",kv=paged',
            "x",
            {"scheduler": "ljf:aging=2,limit=3", "kv": "paged"},
        ),
        ("8bit:kv-memory=2GiB,max_num_seqs=8", "8bit", {"kv_memory": "2GiB", "max_num_seqs": "8"}),
        ("长作业优先:scheduler=ljf", "长作业优先", {"scheduler": "ljf"}),
    ],
)
def test_what_is_read(text: str, name: str, changes: dict[str, str]) -> None:
    arm = one(text)
    assert (arm.name, arm.changes) == (name, changes)


def test_an_arm_is_what_is_common_and_its_changes_over_that() -> None:
    arm = one("long:scheduler=ljf,kv-memory=1MiB", scheduler="sjf", max_num_seqs=4)
    assert arm.config == EngineConfig(scheduler="ljf", kv_memory=2**20, max_num_seqs=4)


def test_an_empty_value_takes_back_what_is_common() -> None:
    assert one("alone:spec-draft=", spec_draft="turnout-tiny").config == EngineConfig()
    assert str(one("alone:spec-draft=", spec_draft="turnout-tiny")) == "alone (spec_draft=default)"


def test_yes_and_no_are_read_as_such() -> None:
    assert one("drafts:spec-ngram=true").config.spec_ngram is True


@pytest.mark.parametrize("text", ["", ":", "a b:kv=paged", "x:", "a/b"])
def test_what_names_no_arm_is_refused_with_the_form(text: str) -> None:
    assert "NAME:field=value" in refusal(text)


def test_names_are_unique() -> None:
    assert "two arms are called 'a'" in refusal("a:kv=paged", "a")


def test_a_misspelt_field_names_the_nearest_and_the_arm() -> None:
    message = refusal("base", "long:schedular=ljf")
    assert "arm 'long'" in message and "did you mean 'scheduler'?" in message


def test_an_unknown_field_lists_all() -> None:
    assert "max-num-seqs" in refusal("x:qqq=1")


def test_an_option_that_slipped_out_of_its_policy_is_told_about_quotes() -> None:
    assert 'scheduler="ljf:aging=2,limit=…"' in refusal("x:scheduler=ljf:aging=2,limit=3")


def test_a_value_that_cannot_be_is_refused_in_one_line() -> None:
    message = refusal("x:max-num-seqs=0,dtype=int4")
    assert "max_num_seqs" in message and "dtype" in message


def test_a_misspelt_policy_is_found_before_anything_runs() -> None:
    assert "arm 'x': no scheduler is called 'ljff'" in refusal("x:scheduler=ljff")


def test_a_policy_option_that_is_not_there_is_found_too() -> None:
    assert "arm 'x'" in refusal("x:scheduler=ljf:agin=2")


def test_a_plugin_that_is_disabled_is_not_there(tmp_path: Path) -> None:
    """Arms were checked against all plugins, and simulated with them, whatever --disable-plugin said."""
    (tmp_path / "turnout_plugins.py").write_text(PLUGIN)
    common = EngineConfig(scheduler="mine", plugins_folder=str(tmp_path))
    check_arms(parse_arms(["base"], common))
    disabled = common.model_copy(update={"disable_plugin": ("turnout_plugins.py",)})
    with pytest.raises(ConfigError, match="no scheduler is called 'mine'"):
        check_arms(parse_arms(["base"], disabled))


PLUGIN = """
from turnout import hookimpl
from turnout.plugins.schedulers.fcfs import Fcfs

@hookimpl
def register_schedulers(register):
    register("mine", Fcfs)
"""
