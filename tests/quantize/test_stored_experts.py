"""`turnout quantize` stores a mixture's experts as loading quantizes them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from family_checkpoints import write_checkpoint
from safetensors.torch import load_file

from turnout import LLM, SamplingParams
from turnout.cli.main import cli
from turnout.models.hub.resolve import resolve_model

PROMPTS = [[5, 9, 70, 33, 12], list(range(40, 80))]


def answers(folder: Path, quantization: str = "none") -> list[tuple[int, ...]]:
    # Kernels chosen by measuring may differ between two engines, and so may the last bits.
    llm = LLM(
        str(folder), quantization=quantization, dtype="float32", kv_memory="16MiB", cpu_kernels="native"
    )
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    return [answer.outputs[0].token_ids for answer in llm.generate(PROMPTS, params, progress=False)]


@pytest.mark.parametrize(
    "name", ["qwen3-moe", pytest.param("mixtral", marks=pytest.mark.slow), "gpt-oss", "deepseek-v2"]
)
def test_experts_are_stored_as_loading_makes_them(name: str, tmp_path: Path) -> None:
    """Also those of gpt-oss, of which a file has all of a layer in one tensor, split as it is read.

    Layers of DeepSeek whose rows are read in another order were refused.
    """
    source, out = tmp_path / name, tmp_path / "out"
    write_checkpoint(name, source)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(resolve_model("turnout-tiny") / file, source)
    result = CliRunner().invoke(cli, ["quantize", str(source), "--quantization", "int8", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert answers(out) == answers(source, "int8")


def test_what_is_said_of_layers_names_them_as_they_are_stored(tmp_path: Path) -> None:
    """The model's names were written, which no other reader finds: Mixtral's gates have another in files."""
    source, out = tmp_path / "mixtral", tmp_path / "out"
    write_checkpoint("mixtral", source, intermediate_size=64)
    how = ["--quantization", "int4wo:lm_head=true", "--out", str(out)]
    result = CliRunner().invoke(cli, ["quantize", str(source), *how])
    assert result.exit_code == 0, result.output
    stated = json.loads((out / "config.json").read_text())["quantization_config"]
    named = {layer for group in stated["config_groups"].values() for layer in group["targets"]}
    layers = {key.rpartition(".")[0] for file in out.glob("*.safetensors") for key in load_file(file)}
    assert len(stated["config_groups"]) > 1 and len(named) > 60 and named < layers
