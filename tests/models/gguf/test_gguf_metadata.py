"""What a GGUF file's metadata says of the computation, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gguf_files import write_gguf

from turnout.cli.main import cli
from turnout.core.errors import ConfigError, ModelError
from turnout.core.registry.registry import Registry
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.hub.resolve import resolve_model
from turnout.runner.checkpoint import open_checkpoint

GGUF = Callable[..., Path]
HEADS = {".attention.head_count": 3, ".attention.head_count_kv": 3, ".attention.key_length": 16}
YARN = {".rope.scaling.type": "yarn", ".rope.scaling.factor": 4.0}


def rope(file: Path) -> dict[str, Any]:
    found = read_config(resolve_model(str(file)))["rope_parameters"]
    assert isinstance(found, dict)
    return found


def refusal(file: Path) -> str:
    with pytest.raises(ModelError) as caught:
        open_checkpoint(Registry.load(), str(file))
    assert str(file) in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------ rotation


@pytest.mark.parametrize(
    "changes",
    [
        {".rope.scale_linear": 4.0},
        {".rope.scaling.factor": 4.0},
        {".rope.scaling.type": "linear", ".rope.scaling.factor": 4.0, ".rope.scale_linear": 8.0},
    ],
)
def test_linear_scaling_has_an_older_key_and_needs_no_type(gguf_file: GGUF, changes: dict[str, Any]) -> None:
    assert rope(gguf_file(changes=changes)) == {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}


def test_a_type_of_none_scales_nothing(gguf_file: GGUF) -> None:
    changes = {".rope.scaling.type": "none", ".rope.scaling.factor": 4.0}
    assert rope(gguf_file(changes=changes))["rope_type"] == "default"


def test_yarns_ends_and_amplitude_are_the_files(gguf_file: GGUF) -> None:
    """llama.cpp multiplies the amplitude with `attn_factor`; transformers' takes the place of it."""
    said = {
        ".rope.scaling.yarn_beta_fast": 16.0,
        ".rope.scaling.yarn_beta_slow": 2.0,
        ".rope.scaling.attn_factor": 1.5,
        ".rope.scaling.yarn_ext_factor": 1.0,
    }
    found = rope(gguf_file(changes={**YARN, **said}))
    assert (found["beta_fast"], found["beta_slow"]) == (16.0, 2.0)
    assert found["attention_factor"] == pytest.approx(1.5 * (0.1 * math.log(4) + 1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (".rope.scaling.yarn_ext_factor", 0.5),
        (".rope.scaling.yarn_attn_factor", 2.0),
        (".rope.scaling.yarn_log_multiplier", 0.1),
        (".rope.dimension_count", 8),
        (".attention.value_length", 8),
        (".attention.clamp_kqv", 0.5),
        (".attention.max_alibi_bias", 8.0),
    ],
)
def test_what_would_change_the_computation_is_refused_by_name(
    gguf_file: GGUF, key: str, value: float
) -> None:
    found = refusal(gguf_file(changes={**YARN, key: value}))
    assert f"llama{key} = {value} is not supported, only " in found


def test_a_factor_of_the_amplitude_needs_yarn(gguf_file: GGUF) -> None:
    found = refusal(gguf_file(changes={".rope.scaling.attn_factor": 2.0}))
    assert "llama.rope.scaling.attn_factor = 2.0 is not supported" in found


def test_defaults_of_what_is_not_read_are_no_reason_to_refuse(gguf_file: GGUF) -> None:
    defaults = {
        ".rope.scaling.yarn_ext_factor": -1.0,
        ".rope.scaling.yarn_attn_factor": 1.0,
        ".rope.scaling.yarn_log_multiplier": 0.0,
        ".rope.scaling.attn_factor": 1.0,
        ".rope.dimension_count": 16,
        ".attention.clamp_kqv": 0.0,
        ".attention.causal": True,
    }
    assert rope(gguf_file(changes=defaults))["rope_type"] == "default"


def test_attention_to_both_sides_makes_an_encoder(gguf_file: GGUF) -> None:
    checkpoint = open_checkpoint(Registry.load(), str(gguf_file(changes={".attention.causal": False})))
    assert checkpoint.spec.encoder and not checkpoint.spec.generates
    assert not any(rule.causal for rule in checkpoint.spec.layer_attention())


# ------------------------------------------------------------------ damaged metadata


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("llama.attention.head_count", 0, "= 0 should be a positive integer"),
        ("llama.attention.head_count", "four", "= 'four' should be a positive integer"),
        ("llama.attention.head_count", 4.0, "= 4.0 should be a positive integer"),
        ("llama.attention.head_count", [4, 4], "= [4, 4] should be a positive integer"),
        ("llama.attention.head_count", 3, "= 3 should be a multiple of llama.attention.head_count_kv = 2"),
        ("llama.attention.head_count_kv", True, "= True should be a positive integer"),
        ("llama.embedding_length", [64], "= [64] should be a positive integer"),
        ("llama.block_count", -1, "= -1 should be a positive integer"),
        ("llama.attention.layer_norm_rms_epsilon", math.nan, "= nan should be a positive number"),
        ("llama.rope.freq_base", "big", "= 'big' should be a positive number"),
        ("llama.rope.freq_base", [1.0], "= [1.0] should be a positive number"),
        ("llama.rope.scaling.type", 3, "= 3 should be a text"),
        ("llama.rope.scaling.type", "ntk", "= 'ntk' is not read, only linear and yarn"),
        ("llama.pooling_type", "mean", "= 'mean' should be an integer"),
        ("split.count", "two", "= 'two' should be an integer"),
        ("split.count", [1, 2], "= [1, 2] should be an integer"),
        ("tokenizer.ggml.eos_token_id", "</s>", "= '</s>' should be an integer"),
        ("tokenizer.ggml.eos_token_id", [0, 1], "= [0, 1] should be an integer"),
        ("tokenizer.ggml.model", 5, "= 5 should be a text"),
    ],
)
def test_a_value_of_another_type_is_named(gguf_file: GGUF, key: str, value: Any, expected: str) -> None:
    assert f"{key} {expected}" in refusal(gguf_file(changes={key: value}))


def _first_merge(merge: str) -> Callable[[Sequence[str]], list[str]]:
    return lambda merges: [merge, *merges[1:]]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tokens": [1, 2, 3]}, "tokens = [1, 2, 3] should be a list of texts"),
        ({"tokens": None}, "the metadata lacks tokenizer.ggml.tokens"),
        ({"token_type": lambda types: types[:-1]}, "token_type has 4,095 entries for 4,096 tokens"),
        ({"token_type": "x"}, "token_type = 'x' should be a list of integers"),
        ({"merges": [1, 2]}, "merges = [1, 2] should be a list of texts"),
        ({"merges": _first_merge("nospace")}, "merges[0] = 'nospace' should be two tokens"),
        ({"merges": _first_merge("qq zzqq")}, "merges[0] = 'qq zzqq' should be two tokens"),
        ({"tokens": lambda tokens: ["", *tokens[1:10], "", *tokens[11:]]}, "should be two tokens"),
        ({"model": "llama"}, "the metadata lacks tokenizer.ggml.scores"),
        ({"model": "llama", "scores": [0.0, 1.0]}, "scores has 2 entries for 4,096 tokens"),
        (
            {"model": "llama", "scores": [0.0] * 4096, "unknown_token_id": 99_999},
            "unknown_token_id = 99999 is none of 4,096 tokens",
        ),
        (
            {"model": "llama", "scores": [0.0] * 4096, "unknown_token_id": "a"},
            "unknown_token_id = 'a' should be an integer",
        ),
        ({"pre": 7}, "pre = 7 should be a text"),
        ({"add_bos_token": "yes"}, "add_bos_token = 'yes' should be true or false"),
    ],
)
def test_a_damaged_vocabulary_is_named(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    """Previously most of these ended in an error of the library, which named neither file nor key."""
    file = tmp_path / "x.gguf"
    named = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    write_gguf(resolve_model("turnout-tiny"), file, tokenizer=True, changes=named)
    assert expected in refusal(file)


def test_a_template_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    write_gguf(
        resolve_model("turnout-tiny"), file, tokenizer=True, changes={"tokenizer.chat_template": ["a", "b"]}
    )
    assert "tokenizer.chat_template = ['a', 'b'] should be a text" in refusal(file)


# ------------------------------------------------------------------ errors name the user's file


def test_what_the_models_code_refuses_names_the_file(gguf_file: GGUF) -> None:
    found = refusal(gguf_file(changes={".block_count": 2**20}))
    assert ": the metadata, as config.json: num_hidden_layers = 1048576 should be at most 4,096" in found


def test_more_parameters_than_the_file_can_hold_name_the_file(gguf_file: GGUF) -> None:
    found = refusal(gguf_file(changes={".embedding_length": 2**20}))
    assert ": the metadata asks for " in found and "turnout/gguf" not in found


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("F32", {".feed_forward_length": 80}, "'blk.0.ffn_"),
        ("Q8_0", {".feed_forward_length": 64}, "mlp."),
        ("F32", {".block_count": 3}, " lacks the tensor 'model.layers.2.input_layernorm.weight' and "),
        ("F32", {".block_count": 1}, " holds the tensor 'blk.1."),
        ("F32", HEADS, " which are no pairs in each of the 3 heads that the metadata asks for"),
        ("Q8_0", HEADS, " which are no pairs in each of the 3 heads that the metadata asks for"),
    ],
)
def test_tensors_that_do_not_fit_name_the_file(
    gguf_file: GGUF, kind: str, changes: dict[str, Any], expected: str
) -> None:
    from test_gguf_models import loaded

    file = gguf_file(kind, changes=changes)
    with pytest.raises(ModelError) as caught:
        loaded(file)
    assert str(caught.value).startswith(str(file)) and expected in str(caught.value)
    assert "config.json" not in str(caught.value)


def test_what_is_quantized_already_names_the_file(gguf_file: GGUF, tmp_path: Path) -> None:
    file = gguf_file("Q8_0")
    asked = ["quantize", str(file), "--quantization", "int8", "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(cli, asked)
    assert found.exit_code == 2 and f"{file} is quantized already, by gguf" in found.output

    from turnout.llm import LLM

    with pytest.raises(ConfigError, match=f"{file} is quantized already, by gguf"):
        LLM(str(file), quantization="int8", dtype="float32", kv_memory="16MiB", cpu_kernels="torch")
