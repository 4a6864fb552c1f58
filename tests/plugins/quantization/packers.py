"""What packages that write quantized checkpoints make of layers whose codes are known.

``python packers.py OUT`` writes that as safetensors, for the packages that are installed;
``packed_by_others.safetensors`` was written so, with AutoGPTQ 0.7.1, GPTQModel 7.7.0, AutoAWQ 0.2.9 and
compressed-tensors 0.20.0. Only their packing is called: AutoGPTQ and AutoAWQ as a whole need versions of
transformers that are long gone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

INPUTS, OUTPUTS, GROUP = 64, 32, 32

Tensors = dict[str, Tensor]


class Grid(NamedTuple):
    """weight = (codes - zero) · scale, for each output and group of inputs."""

    bits: int
    codes: Tensor
    """uint8 [out, in]: every one of them."""
    zero: Tensor
    """uint8 [out, groups]."""
    scale: Tensor
    """float16 [out, groups]."""
    index: Tensor
    """int32 [in]: the group of each input."""

    @classmethod
    def make(cls, bits: int, *, least: int = 1, desc_act: bool = False) -> Grid:
        """Numbers that look like any, and are the same everywhere. least: zero point, which some have."""
        top, rows, columns = 2**bits, torch.arange(OUTPUTS)[:, None], torch.arange(INPUTS)
        groups, places = torch.arange(INPUTS // GROUP), columns * 5 % INPUTS if desc_act else columns
        return cls(
            bits,
            ((rows * 7 + 3) * (columns * 5 + 1) % 257 % top).to(torch.uint8),
            (least + (rows * 11 + groups * 5) % (top - least)).to(torch.uint8),
            ((8 + (rows * 3 + groups) % 8) / 512).half(),
            (places // GROUP).to(torch.int32),
        )

    @property
    def linear(self) -> nn.Linear:
        made = nn.Linear(INPUTS, OUTPUTS, bias=False).requires_grad_(False)
        groups = self.index.long()
        codes, zero = self.codes.float(), self.zero.float()[:, groups]
        made.weight.copy_((codes - zero) * self.scale.float()[:, groups])
        return made


class Case(NamedTuple):
    package: str
    grid: Grid
    config: dict[str, Any]
    """``quantization_config``."""
    pack: Callable[[Grid], Tensors]


# ------------------------------------------------------------------ the packages


def autogptq(grid: Grid) -> Tensors:
    past_init("auto_gptq")
    module = importlib.import_module("auto_gptq.nn_modules.qlinear.qlinear_cuda_old")
    layer = module.QuantLinear(grid.bits, GROUP, INPUTS, OUTPUTS, bias=False)
    layer.pack(grid.linear, grid.scale.float(), grid.zero.float(), grid.index)
    return {**dict(layer.named_buffers()), "scales": layer.scales.half()}


def gptqmodel(grid: Grid, version: int) -> Tensors:
    layers = importlib.import_module("gptqmodel.nn_modules.qlinear.torch")
    layer = layers.TorchLinear(
        bits=grid.bits, group_size=GROUP, sym=False, desc_act=True, in_features=INPUTS, out_features=OUTPUTS
    )
    layer.pack_original(grid.linear, grid.scale.float(), grid.zero.float(), grid.index)
    if version == 1:
        config = importlib.import_module("gptqmodel.quantization").QuantizeConfig(bits=grid.bits)
        convert = importlib.import_module("gptqmodel.utils.model").convert_gptq_v2_to_v1_format_module
        convert(layer, config)
    return {name: getattr(layer, name) for name in ("qweight", "qzeros", "scales", "g_idx")}


def autoawq(grid: Grid) -> Tensors:
    past_init("awq")
    module = importlib.import_module("awq.modules.linear.gemm")
    layer = module.WQLinear_GEMM.from_linear(
        grid.linear, 4, GROUP, scales=grid.scale.t().float(), zeros=grid.zero.t().float()
    )
    return dict(layer.named_buffers())


def gptqmodel_awq(grid: Grid) -> Tensors:
    layers = importlib.import_module("gptqmodel.nn_modules.qlinear.torch_awq")
    layer = layers.AwqTorchLinear(
        bits=4, group_size=GROUP, sym=False, desc_act=False, in_features=INPUTS, out_features=OUTPUTS
    )
    layer.pack(grid.linear, grid.scale.float(), grid.zero.float())
    return {name: getattr(layer, name) for name in ("qweight", "qzeros", "scales")}


def compressed_tensors(grid: Grid) -> Tensors:
    base = importlib.import_module("compressed_tensors.compressors").BaseCompressor
    schemes = importlib.import_module("compressed_tensors.quantization")
    weights = schemes.QuantizationArgs(**WEIGHTS)
    scheme = schemes.QuantizationScheme(targets=["Linear"], weights=weights)
    state = {
        "weight": grid.linear.weight.data,
        "weight_scale": grid.scale.float(),
        "weight_zero_point": (grid.zero.int() - 8).to(torch.int8),
    }
    stored: Tensors = base.get_value_from_registry("pack-quantized").compress(state, scheme)
    return stored


def past_init(name: str) -> None:
    """Have the package's modules at hand, but for what importing the package itself brings."""
    if name in sys.modules:
        return
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}")
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations or [])
    sys.modules[name] = package


# ------------------------------------------------------------------ the cases

GPTQ = {"quant_method": "gptq", "group_size": GROUP}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
V2 = {"checkpoint_format": "gptq_v2"}
WEIGHTS = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": GROUP}
PACKED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS}},
}


def first(grid: Grid) -> Tensors:
    return gptqmodel(grid, 1)


def second(grid: Grid) -> Tensors:
    return gptqmodel(grid, 2)


CASES = {
    # It cannot write a zero point of 0: the one that it takes away floods the word.
    "autogptq 4 bits": Case("auto_gptq", Grid.make(4), {**GPTQ, "bits": 4}, autogptq),
    "autogptq 8 bits": Case("auto_gptq", Grid.make(8), {**GPTQ, "bits": 8}, autogptq),
    "gptqmodel 4 bits": Case("gptqmodel", Grid.make(4, least=0), {**GPTQ, "bits": 4}, first),
    "gptqmodel 8 bits": Case("gptqmodel", Grid.make(8, least=0), {**GPTQ, "bits": 8}, first),
    "gptqmodel desc_act": Case("gptqmodel", Grid.make(4, desc_act=True), {**GPTQ, "bits": 4}, first),
    "gptqmodel v2": Case("gptqmodel", Grid.make(4, least=0), {**GPTQ, **V2, "bits": 4}, second),
    "autoawq gemm": Case("awq", Grid.make(4, least=0), AWQ, autoawq),
    "gptqmodel awq": Case("gptqmodel", Grid.make(4, least=0), AWQ, gptqmodel_awq),
    "compressed-tensors": Case("compressed_tensors", Grid.make(4, least=0), PACKED, compressed_tensors),
}


def main(out: Path) -> None:
    found: Tensors = {}
    for name, case in CASES.items():
        try:
            packed = case.pack(case.grid)
        except ImportError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        found |= {f"{name}/{part}": tensor.contiguous() for part, tensor in packed.items()}
    save_file(found, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
