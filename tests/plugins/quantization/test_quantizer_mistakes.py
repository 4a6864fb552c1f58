"""A quantizer that gives no layer of the same width is named at the start, before a kernel trusts it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import Tensor, nn

from turnout import Quantizer, hookimpl
from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, PluginError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.runner.assembly import build_engine


class Sum(nn.Module):
    def forward(self, x: Tensor) -> float:
        return float(x.sum())


class Changed(nn.Module):
    """What the layer gives, changed."""

    def __init__(self, linear: nn.Linear, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.change = linear, change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.linear(x))


class Stop(BaseException):
    """What a library ends its own loop with."""


def raising(error: BaseException) -> Callable[[nn.Linear], object]:
    def convert(linear: nn.Linear) -> object:
        raise error

    return convert


MISTAKES: dict[str, tuple[Callable[[nn.Linear], object], str]] = {
    "nothing": (lambda linear: None, "TypeError: it returned None; expected the module that takes"),
    "wider": (
        lambda linear: nn.Linear(linear.in_features, linear.out_features + 1),
        r"ValueError: Linear maps \[1, 96\] to \[1, 65\]; expected \[1, 64\]",
    ),
    "no tensor": (lambda linear: Sum(), r"ValueError: Sum maps \[1, 96\] to 0.0; expected \[1, 64\]"),
    "turned round": (lambda linear: nn.Linear(linear.out_features, linear.in_features), "RuntimeError: mat1"),
    "of another dtype": (
        lambda linear: Changed(linear, Tensor.double),
        r"ValueError: Changed maps \[1, 96\] of torch.float32 to torch.float64; expected the same dtype",
    ),
    "not a number": (
        lambda linear: Changed(linear, lambda out: out * float("nan")),
        r"ValueError: Changed maps \[1, 96\] of ones to numbers that are not finite",
    ),
    "an exit": (raising(SystemExit(3)), "SystemExit: 3"),
    "no exception": (raising(Stop("over")), "Stop: over"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_it_is_named_with_the_layer(mistake: str, random_model: Path) -> None:
    """One whose outputs were a number wider made a kernel write past its rows: the process was aborted."""
    made, message = MISTAKES[mistake]

    class Mistaken(Quantizer):
        def wants(self, name: str, linear: nn.Linear) -> bool:
            return name.endswith("down_proj")

        def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
            return made(linear)  # type: ignore[return-value]

    plugin = SimpleNamespace(
        register_quantizers=hookimpl(lambda register: register("mistaken", Mistaken)), __name__="mistakes"
    )
    config = EngineConfig(
        model=str(random_model), kv_memory=2**24, device="cpu", dtype="float32", quantization="mistaken"
    )
    named = r"quantization .mistaken. of mistakes on model.layers.0.mlp.down_proj: convert_named failed: "
    with pytest.raises(PluginError, match=named + message):
        build_engine(config, registry=Registry.load(extra=[plugin]))


def test_one_that_wants_no_layer_is_refused(random_model: Path) -> None:
    """Its name was in the summary, and nothing was quantized."""

    class Choosy(Quantizer):
        def wants(self, name: str, linear: nn.Linear) -> bool:
            return False

        def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
            raise AssertionError

    plugin = SimpleNamespace(
        register_quantizers=hookimpl(lambda register: register("choosy", Choosy)), __name__="choosers"
    )
    config = EngineConfig(
        model=str(random_model), kv_memory=2**24, device="cpu", dtype="float32", quantization="choosy"
    )
    with pytest.raises(ConfigError, match="quantization 'choosy' of choosers wants none of the layers of "):
        build_engine(config, registry=Registry.load(extra=[plugin]))
