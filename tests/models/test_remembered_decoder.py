"""The second start of a model of Llama's shape, by the adapter, finds what the first one found."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from turnout.core.types.model_spec import ModelSpec
from turnout.models.meta_model import meta_model
from turnout.models.random.shapes import Shape, config_of
from turnout.models.transformers_adapter import TransformersAdapter

SHAPE = Shape(hidden=64, layers=3, heads=4, kv_heads=2, intermediate=96, vocab=160, max_positions=512)
CONFIG = config_of(SHAPE, "qwen2")
KEYS = ("model.layers.1.self_attn.q_proj.bias", "layers.2.mlp.up_proj.weight", "model.norm.weight")
TRIAL = "turnout.models.transformers_adapter.check.read_and_try"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "turnout" / "decoders"


def started(config: dict[str, Any] = CONFIG) -> tuple[TransformersAdapter, ModelSpec, nn.Module]:
    family = TransformersAdapter()
    spec = family.spec(config)
    return family, spec, meta_model(family, spec)


def refuse(*_: object) -> None:
    raise AssertionError("it was tried again")


def test_a_full_disk_does_not_get_fuller_with_each_start(cache: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        started()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert cache.is_dir() and not list(cache.iterdir())


def test_the_second_start_tries_nothing_and_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    first, spec, module = started()
    names = [first.rename(key) for key in KEYS]
    monkeypatch.setattr(TRIAL, refuse)
    second, again, built = started()
    assert again == spec and dict(again.config) == CONFIG
    assert repr(built) == repr(module)
    shapes = [{name: value.shape for name, value in each.named_parameters()} for each in (module, built)]
    assert shapes[0] == shapes[1]
    assert [second.rename(key) for key in KEYS] == names
    assert second.rename("model.layers.0.self_attn.rotary_emb.inv_freq") is None  # as transformers has it


def test_a_family_is_chosen_without_transformers() -> None:
    """Importing it takes seconds, and what is remembered needs it no more."""
    code = """
import sys
from pathlib import Path
from turnout.core.registry.registry import Registry
from turnout.runner.model_family import FoundModel, model_family

config = {"architectures": ["StableLmForCausalLM"], "model_type": "stablelm"}
found = FoundModel(Path(), config, "StableLmForCausalLM", None)
print(type(model_family(Registry.load(), found, "auto", trust_remote_code=False)).__name__)
assert "transformers" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["TransformersAdapter"]


def test_another_config_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    started()
    monkeypatch.setattr(TRIAL, refuse)
    with pytest.raises(AssertionError, match="tried again"):
        started({**CONFIG, "rms_norm_eps": 1e-5})
    with pytest.raises(AssertionError, match="tried again"):
        started({**CONFIG, "auto_map": {}})


@pytest.mark.parametrize("content", [b"", b"{}", b'{"spec": 3}'])
def test_what_cannot_be_read_is_found_anew(content: bytes, cache: Path) -> None:
    _, spec, _ = started()
    (file,) = cache.iterdir()
    kept = file.read_bytes()
    file.write_bytes(content)
    assert started()[1] == spec
    assert file.read_bytes() == kept
