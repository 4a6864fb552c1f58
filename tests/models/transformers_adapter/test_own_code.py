"""Code that a checkpoint brings is refused by name, and runs where the user trusts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnout import LLM, SamplingParams
from turnout.core.errors import ModelError
from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.scripts.make_model import copy_tokenizer

CONFIGURATION = """
from transformers import LlamaConfig

class OddConfig(LlamaConfig):
    model_type = "odd"
"""
MODELING = """
from transformers import LlamaForCausalLM
from .configuration_odd import OddConfig

class OddForCausalLM(LlamaForCausalLM):
    config_class = OddConfig
"""
AUTO_MAP = {
    "AutoConfig": "configuration_odd.OddConfig",
    "AutoModelForCausalLM": "modeling_odd.OddForCausalLM",
}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A Llama under a name that only its own code knows."""
    shape = Shape(64, 2, 4, 2, 96, vocab=259, max_positions=128, tied=False)
    write_random_checkpoint(tmp_path, config_of(shape, "llama", dtype="float32"))
    copy_tokenizer(resolve_model("turnout-tiny"), tmp_path)
    (tmp_path / "configuration_odd.py").write_text(CONFIGURATION)
    (tmp_path / "modeling_odd.py").write_text(MODELING)
    return tmp_path


def name(folder: Path, **keys: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}))


def generated(folder: Path, trust_remote_code: bool = False) -> list[int]:
    llm = LLM(str(folder), max_model_len=64, kv_memory=2**22, trust_remote_code=trust_remote_code)
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    return list(llm.generate([[5, 9, 140, 33]], params, progress=False)[0].outputs[0].token_ids)


def test_it_runs_only_where_it_is_trusted(
    odd: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path_factory
) -> None:
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules"))
    )
    expected = generated(odd)
    name(odd, architectures=["OddForCausalLM"], model_type="odd", auto_map=AUTO_MAP)
    with pytest.raises(ModelError, match=r"brings \(configuration_odd\.py, modeling_odd\.py in .*trust"):
        generated(odd)
    assert generated(odd, trust_remote_code=True) == expected
    assert "running code of the checkpoint, as --trust-remote-code says: configuration_odd.py" in caplog.text


def test_it_is_not_needed_where_a_family_has_the_architecture(odd: Path) -> None:
    (odd / "modeling_odd.py").write_text("raise SystemExit('this must not run')")
    expected = generated(odd)
    name(odd, auto_map=AUTO_MAP)
    assert generated(odd, trust_remote_code=True) == expected


def test_code_that_is_missing_is_named(odd: Path) -> None:
    (odd / "modeling_odd.py").unlink()
    name(odd, architectures=["OtherForCausalLM"], model_type="other", auto_map=AUTO_MAP)
    with pytest.raises(ModelError, match=r"lacks modeling_odd\.py, which config\.json: auto_map names"):
        generated(odd, trust_remote_code=True)


def test_code_that_fails_is_told(odd: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory) -> None:
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules"))
    )
    (odd / "modeling_odd.py").write_text("raise ValueError('too old')")
    name(odd, architectures=["OldForCausalLM"], model_type="old", auto_map=AUTO_MAP)
    with pytest.raises(ModelError, match=r"the code in .* cannot be run: .*too old"):
        generated(odd, trust_remote_code=True)
