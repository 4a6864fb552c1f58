"""The one definition of configuration, and how it refuses."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from turnout.core.config import EngineConfig, ServerConfig, parse_bytes
from turnout.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("2GiB", 2 * 2**30),
        ("2g", 2 * 2**30),
        ("2GB", 2 * 10**9),
        (" 1.5 M ", 3 * 2**19),
        (7, 7),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "2 apples", "-1GiB", "1,5GiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kv_memory: .*2GiB"):
        EngineConfig(kv_memory=text)  # type: ignore[arg-type]


def test_text_is_enough_so_that_flags_need_no_types() -> None:
    config = EngineConfig(max_num_seqs="8", kv_memory="1GiB", strict_plugins="true")  # type: ignore[arg-type]
    assert (config.max_num_seqs, config.kv_memory, config.strict_plugins) == (8, 2**30, True)


def test_unknown_options_list_the_known_and_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'schedular'.*did you mean 'scheduler'") as caught:
        EngineConfig(schedular="fcfs")  # type: ignore[call-arg]
    assert "max_num_seqs" in str(caught.value)


def test_every_problem_has_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(port=70000, host=None)  # type: ignore[arg-type]
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["host", "port"]


def test_it_is_frozen() -> None:
    with pytest.raises(ValidationError):
        EngineConfig().model = "other"  # type: ignore[misc]


@pytest.mark.parametrize("config", [EngineConfig, ServerConfig])
def test_every_field_has_its_help(config: type[EngineConfig] | type[ServerConfig]) -> None:
    assert all(field.description for field in config.model_fields.values())


def test_no_flag_means_two_things() -> None:
    assert not EngineConfig.model_fields.keys() & ServerConfig.model_fields.keys()
