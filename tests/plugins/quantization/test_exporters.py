"""`turnout quantize` stores the layers of any quantizer that has an exporter, a third party's too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from turnout import Quantizer, SamplingParams, hookimpl
from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, PluginError
from turnout.core.interfaces import Adopter, ExportedLayer, Exporter
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec
from turnout.quantize import shards
from turnout.quantize.quantize import quantize_checkpoint
from turnout.runner.assembly import build_engine
from turnout.testing.suites.embedded import Tokens, serve


class TenthsLinear(nn.Module):
    """weight = codes · scale, for each output."""

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, (self.codes * self.scale).to(x.dtype), self.bias)


def encode(weight: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    scale = weight.float().abs().amax(1, keepdim=True) / levels
    return (weight.float() / scale).round().to(torch.int8), scale


class TenthsExporter(Exporter):
    quant_method: ClassVar[str] = "tenths"

    def __init__(self, levels: int) -> None:
        self.levels = levels

    def export(self, name: str, weight: Tensor) -> ExportedLayer:
        codes, scale = encode(weight, self.levels)
        return ExportedLayer({"codes": codes, "scale": scale}, {"levels": self.levels})

    def config(
        self, layers: Mapping[str, Mapping[str, object]], unquantized: Sequence[str]
    ) -> Mapping[str, object]:
        return {"levels": self.levels, "layers": len(layers), "unquantized": list(unquantized)}


class TenthsAdopter(Adopter):
    def adopt(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear, context: ComputeContext
    ) -> nn.Module:
        return TenthsLinear(tensors["codes"], tensors["scale"], tensors.get("bias"))


class Tenths(Quantizer):
    """A third party's: weights in a few levels, for all layers but the head."""

    def __init__(self, levels: int = 100) -> None:
        self.levels = levels

    def wants(self, name: str, linear: nn.Linear) -> bool:
        return not name.endswith("lm_head")

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        return TenthsLinear(*encode(linear.weight.detach(), self.levels), linear.bias)

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        return TenthsAdopter()

    def exporter(self) -> Exporter | None:
        return TenthsExporter(self.levels)


def registry(quantizer: type[Quantizer] = Tenths) -> Registry:
    plugin = SimpleNamespace(
        register_quantizers=hookimpl(lambda register: register("tenths", quantizer)), __name__="tenths"
    )
    return Registry.load(extra=[plugin])


def quantize(out: Path, quantizer: type[Quantizer] = Tenths, spec: str = "tenths") -> str:
    return quantize_checkpoint(registry(quantizer), "turnout-tiny", spec, out, revision=None, force=False)


def tokens(model: str, quantization: str = "none") -> Tokens:
    config = EngineConfig(
        model=model, quantization=quantization, kv_memory=2**24, device="cpu", dtype="float32"
    )
    params = SamplingParams(temperature=0, max_tokens=24)
    requests = [RequestSpec(id=f"r{n}", prompt=[n + 5] * 9, params=params, seed=0) for n in range(3)]
    return serve(build_engine(config, registry=registry()).engine, requests)


def test_a_third_partys_checkpoint_gives_the_tokens_of_quantizing_while_loading(tmp_path: Path) -> None:
    report = quantize(tmp_path / "out", spec="tenths:levels=90")
    assert "56 linear layers quantized" in report
    found = tokens(str(tmp_path / "out"))
    assert found == tokens("turnout-tiny", "tenths:levels=90")
    assert found != tokens("turnout-tiny", "tenths:levels=2")


def test_config_and_tensors_are_what_the_exporter_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "SHARD_ELEMENTS", 2**20)
    quantize(tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"] == {
        "quant_method": "tenths", "levels": 100, "layers": 56, "unquantized": ["lm_head"]
    }  # fmt: skip
    tensors = {}
    for file in (tmp_path / "out").glob("*.safetensors"):
        tensors |= load_file(file)
    assert tensors["model.layers.0.mlp.down_proj.codes"].dtype == torch.int8
    assert "model.layers.0.mlp.down_proj.weight" not in tensors
    assert "model.embed_tokens.weight" in tensors


def exporting(export: Callable[[Tensor], object], method: str = "tenths") -> type[Quantizer]:
    class Mistaken(TenthsExporter):
        quant_method = method

        def export(self, name: str, weight: Tensor) -> Any:
            return export(weight)

    class MistakenQuantizer(Tenths):
        def exporter(self) -> Exporter:
            return Mistaken(self.levels)

    return MistakenQuantizer


def unreadable(weight: Tensor) -> object:
    return 1 / 0


MISTAKES: dict[str, tuple[type[Quantizer], str]] = {
    "nothing": (
        exporting(lambda weight: None),
        "on model.*: export returned None; expected an Expor",
    ),
    "weight alone": (
        exporting(lambda weight: ExportedLayer({"weight": weight}, {})),
        r"its tensors are \['weight'\]; expected one called neither 'weight' nor 'bias'",
    ),
    "a whole name": (
        exporting(lambda weight: ExportedLayer({"mlp.codes": weight}, {})),
        "a tensor is called 'mlp.codes'; expected the last part of a name",
    ),
    "no JSON": (
        exporting(lambda weight: ExportedLayer({"codes": weight}, {"weight": weight})),
        "TypeError: Object of type Tensor is not JSON serializable",
    ),
    "raises": (exporting(unreadable), "on model.*: export failed: ZeroDivisionError"),
    "nobody reads it": (
        exporting(lambda weight: ExportedLayer({}, {}), "tenth"),
        "quant_method 'tenth', but no quantizer has this name",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_exporters_mistake_is_named_with_the_layer(mistake: str, tmp_path: Path) -> None:
    quantizer, message = MISTAKES[mistake]
    with pytest.raises(PluginError, match=message):
        quantize(tmp_path / "out", quantizer)


class NoExporter(Tenths):
    def exporter(self) -> None:
        return None


class WantsTheEmbedding(Tenths):
    def wants_embedding(self, name: str) -> bool:
        return True


class WantsTheHead(Tenths):
    def wants(self, name: str, linear: nn.Linear) -> bool:
        return True


@pytest.mark.parametrize(
    ("quantizer", "message"),
    [
        (NoExporter, "quantization 'tenths' cannot be stored in a checkpoint.* with turnout serve"),
        (WantsTheEmbedding, "'tenths' wants model.embed_tokens, but an embedding is stored as it is"),
        (WantsTheHead, "'tenths' wants lm_head, which in this model is its embedding too"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(
    quantizer: type[Quantizer], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        quantize(tmp_path / "out", quantizer)
    assert not list(tmp_path.iterdir())
