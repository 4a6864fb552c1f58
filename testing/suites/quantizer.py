"""The conformance suite of quantizers."""

from __future__ import annotations

import copy
import gc
import json
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Exporter, Quantizer
from turnout.core.registry.registry import Registry
from turnout.testing.suites.suite import Suite, not_for_it, skip, slow

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["QuantizerSuite"]

NAMES = (
    "model.layers.0.self_attn.q_proj",
    "model.layers.0.self_attn.o_proj",
    "model.layers.0.mlp.gate_proj",
    "model.layers.0.mlp.down_proj",
    "lm_head",
)


class QuantizerSuite(Suite[Quantizer]):
    """A converted layer computes nearly what the layer did, and the layer is freed."""

    kind = "quantization"

    error: ClassVar[float] = 0.05
    """Root mean square error of outputs, relative to them, for normally distributed weights and inputs."""
    shapes: ClassVar[Sequence[tuple[int, int]]] = ((64, 96), (128, 64), (256, 32))
    """Input and output features of the layers that are converted."""
    nats: ClassVar[float] = 0.05
    """By how much the mean log-probability of texts may change, with the embedded model."""
    dtypes: ClassVar[Sequence[str]] = ("float32", "bfloat16")
    """Dtypes of the layers that are converted."""
    names: ClassVar[Sequence[str]] = NAMES
    """Names of layers; those that the quantizer wants are converted."""

    def test_it_says_which_layers_it_wants(self) -> None:
        for name in self.names:
            wants = self.make().wants(name, _linear(64, 96, "float32"))
            assert isinstance(wants, bool), f"`wants` returned {wants!r} for {name}; expected a bool"

    def test_outputs_are_close_to_those_of_the_layer(self) -> None:
        for linear, converted in self._converted():
            inputs = _inputs(linear)
            wanted, found = linear(inputs).double(), converted(inputs).double()
            assert found.shape == wanted.shape, (
                f"{linear}: outputs have shape {list(found.shape)}; expected {list(wanted.shape)}"
            )
            off = float((found - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())
            assert off <= self.error, (
                f"{linear}: outputs are off by {off:.2%}; expected at most {self.error:.2%} (`error`)"
            )

    def test_a_row_depends_on_itself_alone(self) -> None:
        """Otherwise answers would depend on what else is served."""
        import torch

        for linear, converted in self._converted():
            inputs = _inputs(linear)
            inputs[3] *= 100  # an outlier must not make other rows less exact
            together = converted(inputs)
            alone = torch.cat([converted(row[None]) for row in inputs])
            near = torch.allclose(
                together.double(), alone.double(), rtol=0.03, atol=0.03 * alone.std().item()
            )
            assert near, f"{linear}: a row has other outputs in a batch than alone; expected the same"

    def test_outputs_have_the_dtype_of_the_inputs(self) -> None:
        for linear, converted in self._converted():
            found = converted(_inputs(linear)).dtype
            assert found == linear.weight.dtype, (
                f"{linear}: outputs are {found}; expected {linear.weight.dtype}, as inputs are"
            )

    def test_extreme_weights_give_finite_outputs(self) -> None:
        """Weights of zero give zero, tiny and large ones no NaN."""
        for value in (0.0, 1e-30, 3e4):
            for linear, converted in self._converted(value):
                outputs = converted(_inputs(linear))
                assert outputs.isfinite().all(), f"{linear}: weights of {value} give NaN or infinity"
                assert value or not outputs.any(), f"{linear}: weights of 0 give outputs other than 0"

    def test_the_layer_can_be_freed(self) -> None:
        quantizer = self.make()
        linear = _linear(*self.shapes[0], "float32")
        if not any(quantizer.wants(name, linear) for name in self.names):
            skip("`wants` returned False for all layers; set `names` to some that it wants")
        converted, gone = quantizer.convert(linear, _context(linear)), weakref.ref(linear)
        kept = converted is linear
        del linear
        gc.collect()
        assert kept or gone() is None, (
            "the layer that `convert` replaced is still referred to, so its memory is not freed; keep no "
            "reference to it"
        )

    def test_the_same_layer_is_converted_the_same_way(self) -> None:
        for (linear, first), (_, again) in zip(self._converted(), self._converted(), strict=True):
            inputs = _inputs(linear)
            assert first(inputs).equal(again(inputs)), f"{linear}: converting it twice gave other outputs"

    def test_an_exported_layer_can_be_read_back(self) -> None:
        """A checkpoint that `turnout quantize` wrote computes what quantizing while loading gives."""
        exporter = self.make().exporter()
        if exporter is None:
            not_for_it("the quantizer has no `exporter`, so `turnout quantize` refuses it")
        if not self.spec:
            skip("`make` builds it, but a checkpoint names the quantizer that reads it; set `spec`")
        for linear, converted in self._converted():
            name = next(name for name in self.names if self.make().wants(name, linear))
            adopted = _read_back(self.registry(), exporter, name, linear)
            inputs = _inputs(linear)
            found, wanted = adopted(inputs), converted(inputs)
            assert found.equal(wanted), (
                f"{linear}: the layer that `adopt` builds from what `export` returns differs in its outputs "
                f"from the layer that `convert` returns, by up to {float((found - wanted).abs().max()):.3g}: "
                "export all that the layer computes with, unrounded"
            )

    @slow
    def test_a_real_model_finds_texts_nearly_as_likely_as_before(self) -> None:
        embedded = self.embedded()
        before, after = embedded.scores(), embedded.scores(quantization=self.spec)
        assert abs(after - before) <= self.nats, (
            f"the mean log-probability of texts is {after:.3f} nats per token, and {before:.3f} "
            f"unquantized; expected a change of at most {self.nats:g} (`nats`)"
        )

    # -------------------------------------------------------------- details

    def _converted(self, value: float | None = None) -> Iterator[tuple[nn.Linear, nn.Module]]:
        """Layers, and the layers that `convert` made of them; all weights are `value`, or drawn at random."""
        import torch

        found = False
        for shape in self.shapes:
            for dtype in self.dtypes:
                for bias in (True, False) if value is None else (False,):
                    quantizer, linear = self.make(), _linear(*shape, dtype, bias=bias, value=value)
                    if any(quantizer.wants(name, linear) for name in self.names):
                        found = True
                        same = _linear(*shape, dtype, bias=bias, value=value)
                        with torch.inference_mode():
                            yield linear, quantizer.convert(same, _context(same))
        if not found:
            skip("`wants` returned False for all layers; set `names` to some that it wants")


def _read_back(registry: Registry, exporter: Exporter, name: str, linear: nn.Linear) -> nn.Module:
    """The layer as it is loaded from a checkpoint that holds what is exported."""
    import torch

    exported = exporter.export(name, linear.weight)
    method = exporter.quant_method
    stated = {"quant_method": method, **exporter.config({name: exported.scheme}, [])}
    tensors = {part: tensor.clone() for part, tensor in exported.tensors.items()}
    if linear.bias is not None:
        tensors["bias"] = linear.bias
    like = copy.deepcopy(linear).to("meta")
    with torch.inference_mode():
        reader = registry.create("quantization", method)
        adopter = reader.adopter(json.loads(json.dumps(stated)))
        return adopter.adopt(name, tensors, like, _context(linear))


def _linear(
    inputs: int, outputs: int, dtype: str, *, bias: bool = False, value: float | None = None
) -> nn.Linear:
    import torch
    from torch import nn

    generator = torch.Generator().manual_seed(inputs * outputs)
    linear = nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)
    for parameter in linear.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) / inputs**0.5)
        if value is not None:
            parameter.fill_(value)
    return linear.to(getattr(torch, dtype))


def _context(linear: nn.Linear) -> ComputeContext:
    return ComputeContext(linear.weight.device, linear.weight.dtype)


def _inputs(linear: nn.Linear) -> Tensor:
    import torch

    generator = torch.Generator().manual_seed(5)
    return torch.randn(7, linear.in_features, generator=generator).to(linear.weight.dtype)
