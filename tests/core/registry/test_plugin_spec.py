"""The grammar of ``--scheduler ljf:aging=2.0``."""

from __future__ import annotations

import pytest

from turnout.core.errors import ConfigError
from turnout.core.registry.spec import PluginSpec


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("fcfs", "fcfs", {}),
        (" fcfs ", "fcfs", {}),
        ("ljf:aging=2.0", "ljf", {"aging": "2.0"}),
        ("ljf:aging=2.0,decay-rate=.5", "ljf", {"aging": "2.0", "decay_rate": ".5"}),
        ("paged: a = 1 , b = 2", "paged", {"a": "1", "b": "2"}),
        ("remote:url=http://127.0.0.1:80/?a=b", "remote", {"url": "http://127.0.0.1:80/?a=b"}),
        ("x:ladder='[1,2,4]',empty=", "x", {"ladder": "[1,2,4]", "empty": ""}),
        ('x:text="it\'s, well"', "x", {"text": "it's, well"}),
    ],
)
def test_what_is_read(text: str, name: str, options: dict[str, str]) -> None:
    assert PluginSpec.parse(text) == PluginSpec(name, options)


@pytest.mark.parametrize(
    "text", ["", ":", "fcfs:", ":a=1", "two words", "x:a", "x:a=1,", "x:=1", "x:a='1", "x:a='1'b"]
)
def test_what_is_refused_shows_the_text_and_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME:option=value") as caught:
        PluginSpec.parse(text)
    assert repr(text) in str(caught.value)


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'a_b' twice"):
        PluginSpec.parse("x:a-b=1,a_b=2")


@pytest.mark.parametrize(
    "mapping",
    [
        {"name": "fcfs"},
        {"name": "ljf", "aging": 2.0, "strict": True, "limit": None},
        {"name": "x", "ladder": [1, 2, 4], "text": "it's, well", "spaced": " a "},
    ],
)
def test_a_mapping_survives_being_written_as_a_flag(mapping: dict[str, object]) -> None:
    spec = PluginSpec.from_mapping(mapping)
    assert PluginSpec.parse(str(spec)) == spec


def test_a_value_with_both_kinds_of_quotes_cannot_be_written() -> None:
    spec = PluginSpec.from_mapping({"name": "x", "text": """it's "so", well"""})
    with pytest.raises(ConfigError, match="contains both kinds of quotes; use one kind"):
        str(spec)


def test_null_in_a_mapping_is_not_given() -> None:
    """It came to the plugin as the text "null", which is no number."""
    spec = PluginSpec.from_mapping({"name": "paged", "block-size": None, "prefix-caching": False})
    assert spec == PluginSpec("paged", {"prefix_caching": "false"})


def test_a_long_text_is_cut_in_messages() -> None:
    with pytest.raises(ConfigError) as caught:
        PluginSpec.parse("fcfs:" + "x" * 70_000)
    assert len(str(caught.value)) < 700


def test_a_mapping_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="'name'"):
        PluginSpec.from_mapping({"aging": 2})
