"""The one definition of configuration, and how it refuses."""

from __future__ import annotations

from datetime import date

import pytest
from pydantic import ValidationError

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ConfigError
from turnout.core.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("2GiB", 2 * 2**30),
        ("2g", 2 * 2**30),
        ("2GB", 2 * 10**9),
        ("3b", 3),
        ("3k", 3 * 2**10),
        ("3KB", 3 * 10**3),
        ("3KiB", 3 * 2**10),
        ("3MB", 3 * 10**6),
        ("3TB", 3 * 10**12),
        ("3t", 3 * 2**40),
        ("3TiB", 3 * 2**40),
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


@pytest.mark.parametrize("size", ["9" * 400, 10**400, 2**63])
def test_a_size_beyond_all_bounds_is_none(size: object) -> None:
    """Given as a number, it ended in an OverflowError where the sums of memory were told."""
    with pytest.raises(ConfigError, match="kv_memory: the size is beyond all bounds"):
        EngineConfig(kv_memory=size)  # type: ignore[arg-type]


def test_the_keys_of_a_json_object_are_texts() -> None:
    """A YAML file has the labels of a classifier under numbers, which did not sort beside texts."""
    config = EngineConfig(hf_overrides={"id2label": {10: "a", 2: "b"}, "x": [{1.5: None}]})  # type: ignore[arg-type]
    assert config.hf_overrides == '{"id2label": {"10": "a", "2": "b"}, "x": [{"1.5": null}]}'
    assert EngineConfig(hf_overrides={1: 2, "b": 3}).hf_overrides == '{"1": 2, "b": 3}'  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"released": date(2024, 5, 1)}, "2024-05-01 is a date, which JSON does not have; put it in quotes"),
        ({date(2024, 5, 1): 1}, "2024-05-01 is a date"),
        ({"a": float("nan")}, "not JSON compliant"),
        ('{"a": NaN}', "not JSON compliant"),
        ({1: "a", "1": "b"}, "a key is given twice"),
        ("[" * 100_000, "recursion"),
        ("7", "such as"),
    ],
    ids=["a date", "a date as key", "nan", "NaN as text", "a key twice", "deep", "a number"],
)
def test_what_json_does_not_have_is_refused(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^hf_overrides: it should be a JSON object.*({message})"):
        EngineConfig(hf_overrides=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "name"),
    [(EngineConfig, "revision"), (EngineConfig, "rank_key_file"), (ServerConfig, "api_key")],
)
def test_text_that_is_not_utf8_is_refused(config: type[EngineConfig] | type[ServerConfig], name: str) -> None:
    """Python reads such an argument with surrogates, which no other process could be told."""
    with pytest.raises(ConfigError, match=f"^{name}: it should be text in UTF-8, .* character 2 of 3 is not"):
        config(**{name: "é\udcff."})  # type: ignore[arg-type]


def test_an_empty_path_is_refused() -> None:
    """It stood for the working directory, in which `--batch-dir ''` wrote its files."""
    paths = [
        (config, name)
        for config in (EngineConfig, ServerConfig)
        for name in config.model_fields
        if name.endswith(("_dir", "_file", "_folder", "_store", "uds", "certfile", "keyfile", "ca_certs"))
        or name in ("model", "chat_template")
    ]
    assert len(paths) == 14
    for config, name in paths:
        with pytest.raises(ConfigError, match=f"^{name}: it should be a path, and is empty"):
            config(**{name: ""})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (ServerConfig, "port"),
        (ServerConfig, "split"),
        (ServerConfig, "request_memory"),
        (EngineConfig, "kv_memory"),
        (EngineConfig, "max_num_batched_tokens"),
    ],
)
def test_true_is_no_number(config: type[EngineConfig] | type[ServerConfig], name: str) -> None:
    """Pydantic reads it as 1: a port of 1, a KV pool of one byte."""
    with pytest.raises(ConfigError, match=f"^{name}: it should not be true or false"):
        config(**{name: True})  # type: ignore[arg-type]


def test_a_long_value_is_cut_in_messages() -> None:
    for name in ("port", "request_memory", "x" * 70_000):
        with pytest.raises(ConfigError) as caught:
            ServerConfig(**{name: "x" * 70_000})  # type: ignore[arg-type]
        assert len(str(caught.value)) < 3_000 and "70,002 characters" in str(caught.value)


def test_names_come_with_commas_or_one_by_one() -> None:
    for given in ("a, b,", ["a,b"], ("a", "b")):
        assert EngineConfig(disable_plugin=given).disable_plugin == ("a", "b")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="disable_plugin"):
        EngineConfig(disable_plugin=7)  # type: ignore[arg-type]


def test_an_arm_is_one_text_commas_and_all() -> None:
    for given in ("long:scheduler=ljf,max-num-seqs=4", ["long:scheduler=ljf,max-num-seqs=4"]):
        assert ServerConfig(ab=given).ab == ("long:scheduler=ljf,max-num-seqs=4",)  # type: ignore[arg-type]


BOUNDS: list[tuple[type[EngineConfig] | type[ServerConfig], str, float | None, float | None]] = [
    (EngineConfig, "spec_tokens", 0, 33),
    (EngineConfig, "max_model_len", 0, None),
    (EngineConfig, "max_num_seqs", 0, None),
    (EngineConfig, "max_num_batched_tokens", 0, None),
    (EngineConfig, "max_waiting", 0, None),
    (EngineConfig, "kv_memory", 0, None),
    (EngineConfig, "swap_memory", -1, None),
    (EngineConfig, "block_size", 0, None),
    (EngineConfig, "gpu_memory_utilization", 0, 1.01),
    (EngineConfig, "memory_share", 0, 1.01),
    (ServerConfig, "split", 0, 1),
    (ServerConfig, "port", -1, 65536),
    (ServerConfig, "engine_restarts", -1, None),
    (ServerConfig, "max_body_size", 0, None),
]
"""What is just too little, and just too much."""


@pytest.mark.parametrize(("config", "name", "low", "high"), BOUNDS, ids=[name for _, name, *_ in BOUNDS])
def test_numbers_have_bounds(
    config: type[EngineConfig] | type[ServerConfig], name: str, low: float | None, high: float | None
) -> None:
    for value in (low, high):
        if value is not None:
            with pytest.raises(ConfigError, match=f"^{name}: Input should be"):
                config(**{name: value})
            step = 0.01 if name in ("gpu_memory_utilization", "memory_share", "split") else 1
            inside = value + step if value is low else value - step
            assert getattr(config(**{name: inside}), name) == inside


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


@pytest.mark.parametrize("secret", [12345, [12345], "12345\udcff", {"key": 12345}])
@pytest.mark.parametrize("field", ["api_key", "admin_key", "ssl_keyfile_password"])
def test_a_secret_stands_in_no_message(field: str, secret: object) -> None:
    """An error is often logged, and printed by `Config` in a traceback."""
    with pytest.raises(ConfigError, match=f"^{field}") as refused:
        ServerConfig(**{field: secret})
    assert "12345" not in str(refused.value)
    assert "swordfish" not in repr(ServerConfig(**{field: "swordfish"}))


def test_it_is_frozen() -> None:
    with pytest.raises(ValidationError):
        EngineConfig().model = "other"  # type: ignore[misc]


@pytest.mark.parametrize("config", [EngineConfig, ServerConfig])
def test_every_field_has_its_help(config: type[EngineConfig] | type[ServerConfig]) -> None:
    """A sentence, which docs/reference/configuration.md has too."""
    assert all((field.description or "").endswith(".") for field in config.model_fields.values())


@pytest.mark.parametrize("config", [EngineConfig, ServerConfig])
def test_every_default_could_be_given(config: type[EngineConfig] | type[ServerConfig]) -> None:
    assert config(**config().model_dump()) == config()


def test_no_flag_means_two_things() -> None:
    assert not EngineConfig.model_fields.keys() & ServerConfig.model_fields.keys()
