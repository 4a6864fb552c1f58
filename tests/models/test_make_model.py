"""The script that makes random-weight models of a given shape."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from turnout.models.checkpoints.checkpoint import read_config, read_generation_config
from turnout.models.decoder.decoder import Decoder
from turnout.models.families import Llama, Qwen2
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import ROPES, SHAPES, config_of

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_model.py"
SMALL = ["--hidden", "64", "--layers", "2", "--heads", "4", "--intermediate", "96", "--vocab", "5000"]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, taking its tokenizer from a folder made here."""
    spec = importlib.util.spec_from_file_location("make_model", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = tmp_path / "embedded"
    source.mkdir()
    (source / "config.json").write_text(json.dumps({"vocab_size": 4096, "eos_token_id": 0}))
    (source / "tokenizer.json").write_text("the tokenizer")
    monkeypatch.setattr(module, "resolve_model", lambda name: source)
    return module


def run(script: ModuleType, out: Path, *args: str) -> str:
    result = CliRunner().invoke(script.main, ["--out", str(out), *SMALL, *args])
    return result.output if result.exit_code else ""


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("family", [Qwen2(), Llama()], ids=["qwen2", "llama"])
def test_the_folder_holds_a_model_that_loads(family, rope, script, tmp_path: Path, load) -> None:
    out = tmp_path / "out"
    kind = family.architectures[0].removesuffix("ForCausalLM").lower()
    assert run(script, out, "--family", kind, "--rope", rope, "--shards", "2", "--dtype", "bfloat16") == ""
    spec = family.spec(read_config(out))
    assert (spec.hidden_size, spec.layers, spec.kv_heads) == (64, 2, 2)
    assert (spec.rope.kind, spec.dtype, spec.eos_token_ids) == (rope, "bfloat16", (0,))
    assert load(out).model.norm.weight.shape == (64,)


def test_the_folder_holds_the_tokenizer_and_its_special_tokens(script, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(script, out) == ""
    assert (out / "tokenizer.json").read_text() == "the tokenizer"
    assert read_generation_config(out) == {"eos_token_id": 0}


def test_a_vocabulary_too_small_for_the_tokenizer_is_refused(script, tmp_path: Path) -> None:
    assert "4096" in run(script, tmp_path / "out", "--vocab", "500")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("shape", "millions"), [("qwen2.5-0.5b", 494.0), ("m2", 15.7)], ids=["qwen2.5-0.5b", "m2"]
)
def test_named_shapes_have_the_size_they_claim(shape: str, millions: float) -> None:
    with torch.device("meta"):
        module = Decoder(Qwen2().spec(config_of(SHAPES[shape], "qwen2")))
    assert sum(value.numel() for value in module.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


def test_weights_follow_from_the_seed_alone(tiny_config, tmp_path: Path) -> None:
    for name, options in {"a": {}, "again": {}, "sharded": {"shards": 4}, "b": {"seed": 1}}.items():
        write_random_checkpoint(tmp_path / name, tiny_config(), **options)

    def weights(name: str) -> dict[str, torch.Tensor]:
        files = sorted((tmp_path / name).glob("*.safetensors"))
        return {key: value for file in files for key, value in load_file(file).items()}

    first = weights("a")
    for same in ("again", "sharded"):
        assert all(torch.equal(value, first[key]) for key, value in weights(same).items())
    assert not any(torch.equal(value, first[key]) for key, value in weights("b").items())
