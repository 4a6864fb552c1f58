"""Fields of the configuration that stand for options, as plugins declare them with their registration."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, PluginError
from turnout.core.registry.hookspecs import Flag, Register, hookimpl
from turnout.core.registry.registry import Registry
from turnout.runner.choices import check_policies, policy_choices

PAGED = "turnout.plugins.kv_backends.paged.backend:Paged"


def registry(*flags: Flag) -> Registry:
    """What is built in, and a KV backend that declares `flags`."""

    @hookimpl
    def register_kv_backends(register: Register) -> None:
        register("mine", PAGED, flags=flags)

    return Registry.load(extra=[SimpleNamespace(register_kv_backends=register_kv_backends)])


def chosen(flags: Sequence[Flag] = (), **fields: object) -> list[str]:
    return [str(choice) for choice in policy_choices(registry(*flags), EngineConfig(**fields), "kv")]


def test_a_flag_is_an_option_of_the_plugin_that_declares_it() -> None:
    assert chosen(block_size=8) == ["paged:block_size=8"]
    assert chosen(kv="paged:prefix_caching=false", block_size=8) == [
        "paged:prefix_caching=false,block_size=8"
    ]
    assert chosen(kv_cache_dtype="int8") == ["paged:dtype=int8"]
    assert chosen(kv="contiguous", kv_cache_dtype="fp8") == ["contiguous:dtype=fp8"]
    assert chosen() == ["paged"]


def test_where_another_is_chosen_that_one_is_given_it() -> None:
    assert chosen(kv="mine", block_size=8) == ["mine:block_size=8"]
    assert chosen(kv="contiguous", block_size=8) == ["contiguous:block_size=8"]  # which refuses it


def test_a_plugin_may_call_the_option_otherwise() -> None:
    assert chosen([Flag("block_size", "tokens")], kv="mine", block_size=8) == ["mine:tokens=8"]
    assert chosen([Flag("block_size", "tokens")], block_size=8)[-1] == "paged:block_size=8"


@pytest.mark.parametrize("kv", ["mine", "paged"])
def test_a_flag_for_a_field_that_does_not_exist_is_an_error_whatever_is_chosen(kv: str) -> None:
    """Once only for the plugin that was chosen: a misspelt field of any other had no effect, and no word."""
    with pytest.raises(
        PluginError, match=r"kv 'mine' of .* declares a flag for 'blocksize', .*did you mean 'block_size'\?"
    ):
        chosen([Flag("blocksize", "block_size")], kv=kv)


def test_a_flag_for_a_field_that_does_not_exist_is_found_before_anything_is_loaded() -> None:
    with pytest.raises(PluginError, match="'blocksize'"):
        check_policies(registry(Flag("blocksize", "block_size")), EngineConfig())


def test_a_flag_that_nothing_takes_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"spec_tokens=3 says how far to draft, .*; give spec_draft or spec_ng"
    ):
        policy_choices(Registry.load(), EngineConfig(spec_tokens=3), "decoding")
