"""Linear layers that read the same input are computed as one, wherever they are called."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from turnout.core.interfaces.models import ModelCapabilities
from turnout.models.checkpoints.siblings import JointPart, Siblings


class Three(nn.Module):
    """Declares that q, k and v read the same input; what they give is counted as computed once."""

    capabilities: ClassVar = ModelCapabilities(siblings=(("q", "k", "v"),))

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 6), nn.Linear(8, 2), nn.Linear(8, 2, bias=False)
        self.other = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.q(x), self.k(x), self.v(x)]


def joined(module: nn.Module) -> list[Tensor]:
    """Joins what is complete, and returns where the inputs of the joint layer will be noted."""
    siblings = Siblings(module, None)  # type: ignore[arg-type]  # PyTorch's operators
    assert siblings.join_complete(["q", "other"]) == ["other"]
    joint = module.get_submodule("q").joint
    inputs: list[Tensor] = []
    joint.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    return inputs


@torch.no_grad()
def test_one_product_gives_each_its_part() -> None:
    module, x = Three(), torch.randn(1, 5, 8)
    expected = module(x)
    inputs = joined(module)
    assert all(isinstance(module.get_submodule(name), JointPart) for name in "qkv")
    for found, right in zip(module(x), expected, strict=True):
        torch.testing.assert_close(found, right)
    assert [each.shape for each in inputs] == [(5, 8)]


@torch.no_grad()
def test_other_numbers_in_the_same_tensor_are_computed_again() -> None:
    module, x = Three(), torch.randn(5, 8)
    inputs = joined(module)
    module(x)
    x.zero_()
    assert torch.equal(module.q(x), module.q(torch.zeros(5, 8)))
    assert len(inputs) == 3


@torch.no_grad()
def test_one_that_is_called_with_another_input_alone_is_right() -> None:
    module, x, y = Three(), torch.randn(5, 8), torch.randn(3, 8)
    expected = module.q(x), module.k(y), module.v(x)
    joined(module)
    for found, right in zip((module.q(x), module.k(y), module.v(x)), expected, strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize("joins", [True, False])
def test_quantized_layers_are_joined_where_they_can_be(joins: bool) -> None:
    class Quantized(nn.Module):
        def __init__(self, weight: Tensor) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor) -> Any:
            return x @ self.weight.T

        @property
        def capabilities(self) -> Any:
            from turnout.models.decoder.packed import LayerCapabilities

            return LayerCapabilities(join=self.join)

        def join(self, others: Any) -> nn.Module | None:
            parts = [self, *others]
            alike = joins and all(isinstance(each, Quantized) for each in parts)
            return Quantized(torch.cat([each.weight for each in parts])) if alike else None

    module, x = Three(), torch.randn(4, 8)
    siblings = Siblings(module, None)  # type: ignore[arg-type]
    weights = [module.get_submodule(name).weight.detach() for name in "qkv"]
    for name, weight in zip("qkv", weights, strict=True):
        module.set_submodule(name, Quantized(weight))
        siblings.join_complete([name])
    assert {type(module.get_submodule(name)) for name in "qkv"} == {JointPart if joins else Quantized}
    for found, weight in zip(module(x), weights, strict=True):
        torch.testing.assert_close(found, x @ weight.T)
