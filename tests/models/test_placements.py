"""A family says where a checkpoint's tensors go: split, transposed, permuted, or stacked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from turnout import Placement
from turnout.core.errors import ModelError, PluginError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Renamed, placements
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.checkpoints.loading import load_model
from turnout.models.checkpoints.stored_layers import row_order
from turnout.models.families import Llama

LAYER = "model.layers.{}."


def in_pairs(weight: Tensor, heads: int) -> Tensor:
    """Orders rows so that halves that are rotated together are neighbours, as the original Llama had them."""
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def by_halves(weight: Tensor) -> Tensor:
    return weight.view(2, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


class Rearranged(Llama):
    """Reads a Llama whose file joins gate and up, transposes projections, and orders keys in pairs."""

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        self.inner = config["intermediate_size"]
        return super().spec(config)

    def rename(self, key: str) -> Renamed:
        layer, fused, _ = key.partition("gate_up.")
        if fused:
            gate, up = slice(0, self.inner), slice(self.inner, 2 * self.inner)
            return Placement(f"{layer}gate_proj.weight", take=(gate,)), Placement(
                f"{layer}up_proj.weight", take=(up,)
            )
        if key.endswith("o_proj.weight"):
            return Placement(key, transposed=True)
        if key.endswith("k_proj.weight"):
            return Placement(key, change=by_halves)
        return super().rename(key)


def rearranged(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    out = dict(tensors)
    for layer in map(LAYER.format, range(2)):
        parts = [out.pop(f"{layer}mlp.{part}_proj.weight") for part in ("gate", "up")]
        out[f"{layer}mlp.gate_up.weight"] = torch.cat(parts)
        out[f"{layer}self_attn.o_proj.weight"] = out[f"{layer}self_attn.o_proj.weight"].t().contiguous()
        out[f"{layer}self_attn.k_proj.weight"] = in_pairs(out[f"{layer}self_attn.k_proj.weight"], 2)
    return out


@pytest.fixture
def folder(checkpoint: Callable[..., Path], tiny_config: Callable[..., dict[str, Any]]) -> Path:
    return checkpoint(tiny_config())


def load(folder: Path, family: Llama) -> nn.Module:
    config = read_config(folder)
    return load_model(
        folder, family, family.spec(config), ComputeContext(torch.device("cpu"), torch.float32, None)
    )


def test_split_transposed_and_permuted_tensors_are_the_same_model(folder: Path) -> None:
    plain = dict(load(folder, Llama()).named_parameters())
    file = folder / "model.safetensors"
    save_file(rearranged(load_file(file)), file)

    found = dict(load(folder, Rearranged()).named_parameters())

    assert found.keys() == plain.keys()
    assert all(torch.equal(found[name], plain[name]) for name in plain)
    assert all(value.is_contiguous() for value in found.values())


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.Parameter(torch.empty(3, 4, 2))


class Stacking(Llama):
    """Stacks three experts into one parameter."""

    def build(self, spec: ModelSpec) -> nn.Module:
        return Stack()

    def rename(self, key: str) -> Renamed:
        return Placement("experts", transposed=True, into=(int(key.rpartition(".")[2]),))


def test_experts_are_stacked_into_one_parameter(folder: Path) -> None:
    experts = {f"expert.{number}": torch.randn(2, 4) for number in range(3)}
    save_file(experts, folder / "model.safetensors")

    model = load(folder, Stacking())

    assert torch.equal(model.experts, torch.stack([expert.t() for expert in experts.values()]))


def test_a_missing_expert_is_reported(folder: Path) -> None:
    save_file({"expert.0": torch.randn(2, 4), "expert.2": torch.randn(2, 4)}, folder / "model.safetensors")

    with pytest.raises(ModelError, match=r"fills only 16 of the 24 numbers of 'experts'"):
        load(folder, Stacking())


def test_a_part_of_the_wrong_shape_is_named_with_what_is_taken(folder: Path) -> None:
    class Wrong(Llama):
        def rename(self, key: str) -> Renamed:
            return Placement(key, take=(slice(0, 3),)) if key.endswith("k_proj.weight") else key

    with pytest.raises(
        ModelError, match=r"k_proj.weight' has shape \[32, 64\], of which \[3, 64\] is placed, config.json"
    ):
        load(folder, Wrong())


def test_an_answer_that_is_no_placement_names_the_plugin(folder: Path) -> None:
    class Odd(Llama):
        def rename(self, key: str) -> Any:
            return [key]

    with pytest.raises(PluginError, match=r"rename of \S+ failed: TypeError: rename gave"):
        load(folder, Odd())


def test_names_and_none_are_placements_too() -> None:
    assert placements(None) == ()
    assert placements("here") == (Placement("here"),)
    assert placements([Placement("a"), Placement("b")]) == (Placement("a"), Placement("b"))


def test_an_order_of_rows_is_told_from_other_changes() -> None:
    rows = [2, 0, 1, 3]
    order = row_order(lambda weight: weight[rows], 4)
    assert order is not None
    assert order.tolist() == rows
    for change in (
        lambda weight: weight[:2],
        lambda weight: weight[[0, 0, 1, 2]],
        lambda weight: weight * 2,
        lambda weight: weight + 1,
        lambda weight: weight.t(),
        lambda weight: weight.flip(1),
        lambda weight: weight[:, [9, 1]],
    ):
        assert row_order(change, 4) is None
