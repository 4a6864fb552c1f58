"""What GGUF files hold otherwise than Hugging Face's checkpoints do: MXFP4, and keys apart from values."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from family_checkpoints import write_checkpoint
from gguf_files import write_gguf

from turnout.core.errors import ModelError
from turnout.models.checkpoints.readers.gguf_file import GGUFFile
from turnout.models.gguf.numbers import dequantized

MXFP4 = gguf.GGMLQuantizationType.MXFP4
LAYER = "model.layers.0"


def written(folder: Path, arch: str, *, experts: int = 0, **tensors: np.ndarray) -> GGUFFile:
    """uint8 is MXFP4's. experts: what the metadata says; 0: nothing."""
    writer = gguf.GGUFWriter(folder / "model.gguf", arch)
    if experts:
        writer.add_expert_count(experts)
    for name, values in tensors.items():
        kind = MXFP4 if values.dtype == np.uint8 else None
        writer.add_tensor(f"blk.0.{name}.weight", values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFFile(folder / "model.gguf")


def test_mxfp4_is_held_exactly_in_blocks_of_eight_bits(tmp_path: Path) -> None:
    numbers = np.random.default_rng(3).normal(size=(2, 6, 64)).astype(np.float32)
    file = written(tmp_path, "gpt-oss", ffn_gate_exps=gguf.quantize(numbers, MXFP4))
    for expert in range(2):
        key = f"{LAYER}.mlp.experts.{expert}.gate_proj.weight"
        exact = gguf.dequantize(gguf.quantize(numbers[expert], MXFP4), MXFP4)
        assert file.blocks(key) == "q8_0"
        np.testing.assert_array_equal(dequantized(file.read_blocks(key), "q8_0"), exact)
        with file.read(key) as read:
            np.testing.assert_array_equal(read, exact)


@pytest.mark.parametrize(("codes", "held"), [(0x80, True), (0x11, False)])
def test_scales_beyond_float16_are_refused_unless_all_is_zero(tmp_path: Path, codes: int, held: bool) -> None:
    blocks = np.full((1, 4, 17), codes, np.uint8)
    blocks[..., 0] = 0  # the least scale: 2^-127
    file, key = written(tmp_path, "gpt-oss", ffn_up_exps=blocks), f"{LAYER}.mlp.experts.0.up_proj.weight"
    if held:
        assert not dequantized(file.read_blocks(key), "q8_0").any()
        return
    with pytest.raises(ModelError, match=r"'model.layers.0.mlp.experts.0.up_proj.weight' has scales beyond"):
        file.read_blocks(key)


def test_experts_are_as_many_as_the_metadata_says(tmp_path: Path) -> None:
    """A file of 8 MB that announced 4 million took minutes, and gigabytes, before it was refused."""
    stack = np.zeros((2**20, 1, 1), np.float16)
    file = written(tmp_path, "qwen3moe", experts=4, ffn_up_exps=stack)
    with pytest.raises(ModelError, match=r"has 1,048,576 experts, qwen3moe\.expert_count is 4"):
        file.names()


def test_keys_and_values_are_expanded_by_one_tensor_again(tmp_path: Path) -> None:
    keys, values = torch.randn(3, 4, 5), torch.randn(3, 2, 4)
    file = written(tmp_path, "deepseek2", attn_k_b=keys.numpy(), attn_v_b=values.numpy())
    key = f"{LAYER}.self_attn.kv_b_proj.weight"
    assert file.names() == [key] and file.shape(key) == (3 * 7, 4)
    with file.read(key) as read:
        assert torch.equal(read.view(3, 7, 4)[:, :5], keys.mT)
        assert torch.equal(read.view(3, 7, 4)[:, 5:], values)


@pytest.mark.parametrize("shape", [None, (2, 2, 4), (3, 2, 5), (3, 8)])
def test_parts_that_do_not_go_together_are_refused(tmp_path: Path, shape: tuple[int, ...] | None) -> None:
    tensors = {"attn_k_b": np.zeros((3, 4, 5), np.float32)}
    if shape is not None:
        tensors["attn_v_b"] = np.zeros(shape, np.float32)
    file = written(tmp_path, "deepseek2", **tensors)
    with pytest.raises(
        ModelError, match=r"has 'blk.0.attn_k_b.weight' \[3, 4, 5\].* are expected, of the same"
    ):
        file.names()


@pytest.mark.slow
def test_older_files_of_deepseek_have_whole_keys(tmp_path: Path) -> None:
    write_checkpoint("deepseek-v2", tmp_path / "source")
    new = GGUFFile(write_gguf(tmp_path / "source", tmp_path / "new.gguf", "F32"))
    old = GGUFFile(write_gguf(tmp_path / "source", tmp_path / "old.gguf", "F32", latent=False))
    assert sorted(new.names()) == sorted(old.names())
    for name in new.names():
        with new.read(name) as one, old.read(name) as other:
            assert torch.equal(one, other), name
