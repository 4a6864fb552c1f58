"""Weights stream from safetensors into place, and damage is reported by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Quantizer
from turnout.models.checkpoints.checkpoint import read_config, read_generation_config
from turnout.models.checkpoints.readers import safetensors_file
from turnout.models.checkpoints.readers.safetensors_open import open_tensors
from turnout.models.random.shapes import Shape, config_of

PROJECTION = "model.layers.1.self_attn.k_proj.weight"


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change the tensors of a single-file checkpoint."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def values(module: nn.Module) -> dict[str, torch.Tensor]:
    return dict(module.named_parameters())


def assert_same_values(ours: nn.Module, others: nn.Module) -> None:
    mine, theirs = values(ours), values(others)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


# ------------------------------------------------------------------ what is loaded


def test_every_tensor_arrives_unchanged(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config("llama", attention_bias=True, mlp_bias=True))
    stored, loaded = load_file(folder / "model.safetensors"), values(load(folder))
    assert stored.keys() == loaded.keys()
    assert all(torch.equal(stored[name], loaded[name]) for name in stored)


def test_shards_hold_the_same_model_as_one_file(tiny_config, checkpoint, load) -> None:
    whole = checkpoint(tiny_config("qwen2"), seed=5)
    parts = checkpoint(tiny_config("qwen2"), seed=5, shards=3)
    assert len(list(parts.glob("model-*-of-00003.safetensors"))) == 3
    assert_same_values(load(whole), load(parts))


def test_weights_take_the_dtype_asked_for_and_frequencies_stay_exact(tiny_config, checkpoint, load) -> None:
    module = load(checkpoint(tiny_config("llama", "dynamic")), dtype=torch.bfloat16)
    assert {value.dtype for value in module.parameters()} == {torch.bfloat16}
    assert {value.dtype for value in module.buffers()} == {torch.float32}
    assert not any(
        value.is_meta or value.requires_grad for value in [*module.parameters(), *module.buffers()]
    )


def test_a_file_of_many_tensors_is_not_opened_for_each(tiny_config, checkpoint, load, monkeypatch) -> None:
    """Opening it takes the longer the more tensors it has."""
    folder, opened = checkpoint(tiny_config()), []

    def counted(file: Path) -> Any:
        opened.append(file)
        return open_tensors(file)

    monkeypatch.setattr(safetensors_file, "open_tensors", counted)
    monkeypatch.setattr(safetensors_file, "MAPPED", 100_000)
    load(folder)
    size = (folder / "model.safetensors").stat().st_size
    assert (
        size / 100_000 / 2 < len(opened) < size / 100_000 + 3 < len(load_file(folder / "model.safetensors"))
    )


def test_weights_outlive_their_file(tiny_config, checkpoint, load) -> None:
    """A view of the mapped file would crash the process once the file is cut short."""
    folder = checkpoint(tiny_config())
    module = load(folder)
    before = {name: value.clone() for name, value in values(module).items()}
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(0)
    assert all(torch.equal(value, before[name]) for name, value in values(module).items())


def test_tied_embeddings_are_stored_once(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config("llama", tie_word_embeddings=True))
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    module = load(folder)
    assert module.lm_head.weight is module.model.embed_tokens.weight


def test_a_stored_copy_of_the_tied_head_is_skipped(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config("llama", tie_word_embeddings=True))
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(160, 64)}))
    module = load(folder)
    assert module.lm_head.weight is module.model.embed_tokens.weight
    assert module.lm_head.weight.any()


def test_stored_rotary_frequencies_are_skipped(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    plain = load(folder)
    stored = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}
    rewrite(folder, lambda tensors: tensors.update(stored))
    assert_same_values(load(folder), plain)


# ------------------------------------------------------------------ memory

MEASURE = """
import sys, torch
from pathlib import Path
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.families import Qwen2
from turnout.core.interfaces.compute import ComputeContext
from turnout.models.checkpoints.loading import load_model

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))

folder = Path(sys.argv[1])
family = Qwen2()
spec = family.spec(read_config(folder))
Path("/proc/self/clear_refs").write_text("5")  # forget the peak of importing
before = status("VmRSS")
module = load_model(folder, family, spec, ComputeContext(torch.device("cpu"), torch.bfloat16))
print(status("VmHWM") - before, sum(value.nbytes for value in module.parameters()))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("stored", [pytest.param("bfloat16", marks=pytest.mark.slow), "float32"])
def test_peak_memory_is_the_weights_and_one_tensor(stored: str, checkpoint) -> None:
    """Peak resident memory, mapped file pages included, against 200 MB of slack that the promise allows.

    The slack here is 60 MB: with 150 MB of weights, a file that stays mapped would go beyond it.
    """
    shape = Shape(hidden=1024, layers=5, heads=16, kv_heads=4, intermediate=2816, vocab=16_384, tied=True)
    folder = checkpoint(config_of(shape, "qwen2"), dtype=stored)
    run = subprocess.run([sys.executable, "-c", MEASURE, folder], capture_output=True, text=True, check=True)
    peak, weights = map(int, run.stdout.split())
    largest = shape.vocab * shape.hidden * getattr(torch, stored).itemsize
    assert weights > 140e6
    assert peak <= weights + largest + 60e6


# ------------------------------------------------------------------ quantizers


class Recording(Quantizer):
    """Doubles the layers it wants, and notes what was still without values when it was called."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self.asked: list[str] = []
        self.converted: list[nn.Linear] = []

    def wants(self, name: str, linear: nn.Linear) -> bool:
        self.asked.append(name)
        return self.wanted in name

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        assert not any(value.is_meta for value in linear.parameters())
        self.converted.append(linear)
        return Doubled(linear)


class Doubled(nn.Module):
    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("weight", 2 * linear.weight.detach())
        self.register_buffer("bias", None if linear.bias is None else 2 * linear.bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


def test_wanted_layers_are_converted_with_all_their_tensors(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config("qwen2"), shards=5)
    plain, quantizer = load(folder), Recording("k_proj")
    module = load(folder, quantizer=quantizer)
    assert len(quantizer.converted) == 2
    for ours, theirs in zip(module.model.layers, plain.model.layers, strict=True):
        assert isinstance(ours.self_attn.k_proj, Doubled)
        assert torch.equal(ours.self_attn.k_proj.weight, 2 * theirs.self_attn.k_proj.weight)
        assert torch.equal(ours.self_attn.k_proj.bias, 2 * theirs.self_attn.k_proj.bias)
        assert isinstance(ours.self_attn.q_proj, nn.Linear)


def test_each_linear_layer_is_offered_once(tiny_config, checkpoint, load) -> None:
    folder, quantizer = checkpoint(tiny_config("qwen2")), Recording("none of them")
    module = load(folder, quantizer=quantizer)
    linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    assert sorted(quantizer.asked) == sorted(linear)


def test_a_converted_layer_is_let_go_at_once(tiny_config, checkpoint, load) -> None:
    """Kept until the end of loading, the originals would cost as much memory as the whole model."""
    import weakref

    alive: list[weakref.ref[nn.Linear]] = []

    class Counting(Recording):
        def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
            assert not [ref for ref in alive if ref() is not None]
            alive.append(weakref.ref(linear))
            return Doubled(linear)

    load(checkpoint(tiny_config("llama")), quantizer=Counting("proj"))
    assert len(alive) == 14


def test_a_tied_head_can_be_converted_and_leaves_the_embedding(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config("llama", tie_word_embeddings=True))
    module = load(folder, quantizer=Recording("lm_head"))
    assert isinstance(module.lm_head, Doubled)
    assert torch.equal(module.lm_head.weight, 2 * module.model.embed_tokens.weight)


# ------------------------------------------------------------------ damage


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(PROJECTION), f"lacks the tensor '{PROJECTION}'"),
        (lambda tensors: tensors.pop("lm_head.weight"), "lacks the tensor 'lm_head.weight'"),
        (lambda tensors: tensors.update({"extra.weight": torch.zeros(2)}), "'extra.weight', which the model"),
        (
            lambda tensors: tensors.update({PROJECTION: torch.zeros(3, 64)}),
            rf"{PROJECTION}' has shape \[3, 64\]",
        ),
        (
            lambda tensors: tensors.update({PROJECTION: torch.zeros(32, 64, dtype=torch.int8)}),
            f"{PROJECTION}' is torch.int8",
        ),
    ],
    ids=["missing", "missing head", "unexpected", "shape", "type"],
)
def test_wrong_tensors_are_named(change, message: str, tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    rewrite(folder, change)
    with pytest.raises(ModelError, match=message) as error:
        load(folder)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", [0, 4, 100, 20_000], ids=lambda length: f"{length} bytes left")
def test_a_file_that_was_cut_short_is_named(length: int, tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(length)
    with pytest.raises(ModelError, match=r"model\.safetensors is (damaged or )?cut short"):
        load(folder)


def test_the_tensors_that_a_file_has_lost_are_named(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    file = folder / "model.safetensors"
    with safe_open(file, framework="pt") as stored:
        *_, before, last = stored.offset_keys()
        lost = stored.get_tensor(before).nbytes + stored.get_tensor(last).nbytes
    for cut, message in ((1, f"'{last}'"), (lost - 1, f"'{before}', before 1 more")):
        with open(file, "r+b") as opened:
            opened.truncate(opened.seek(0, 2) - cut)
        with pytest.raises(ModelError, match=f"is cut short in the tensor {message}; fetch it"):
            load(folder)


def test_a_file_that_is_something_else_is_named(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    (folder / "model.safetensors").write_bytes(b"<html>Too many requests</html>\n" * 3)
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
        load(folder)


def test_a_clone_without_its_large_files_is_told_from_damage(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n" * 3)
    with pytest.raises(ModelError, match=r"run: git lfs pull"):
        load(folder)


def test_a_file_of_another_user_is_told_from_damage(tiny_config, checkpoint, load, monkeypatch) -> None:
    """safetensors says that it does not exist. Tests may run as root, who may read anything."""
    folder = checkpoint(tiny_config())
    file = folder / "model.safetensors"
    assert file.stat().st_mode == (folder / "config.json").stat().st_mode  # it was for its owner alone
    file.write_bytes(b"")
    monkeypatch.setattr("os.access", lambda path, mode: path != file)
    with pytest.raises(ModelError, match=r"this user may not read"):
        load(folder)


def test_a_missing_shard_is_named(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config(), shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-00002-of-00003\.safetensors is missing"):
        load(folder)


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": "../b"}}'])
def test_a_malformed_index_is_named(index: str, tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json"):
        load(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_refused(name: str, tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(ModelError, match=rf"only pickle weights \({name}\).* refused"):
        load(folder)


def test_a_folder_without_weights_is_reported(tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config())
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="holds no weights"):
        load(folder)


# ------------------------------------------------------------------ configs


def test_a_missing_config_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        read_config(tmp_path)


def test_a_missing_generation_config_says_nothing(tmp_path: Path) -> None:
    assert read_generation_config(tmp_path) == {}


@pytest.mark.parametrize("text", ["{", "[1]", "\x00"])
def test_malformed_json_is_named(text: str, tmp_path: Path) -> None:
    for name, read in (("config.json", read_config), ("generation_config.json", read_generation_config)):
        (tmp_path / name).write_text(text)
        with pytest.raises(ModelError, match=str(tmp_path / name)):
            read(tmp_path)


def test_json_is_returned_as_it_is(tmp_path: Path) -> None:
    written = {"temperature": 0.7, "eos_token_id": [1, 2]}
    (tmp_path / "generation_config.json").write_text(json.dumps(written))
    assert read_generation_config(tmp_path) == written
