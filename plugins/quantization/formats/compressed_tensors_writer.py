"""Writes the layout of compressed-tensors, which `compressed_tensors.py` describes and reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from turnout.core.interfaces.quantization import ExportedLayer, Exporter

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DYNAMIC", "CompressedTensorsExporter", "exported"]

DYNAMIC = {"num_bits": 8, "symmetric": True, "strategy": "token", "dynamic": True}
"""Activations with a scale for each token, found as they come; their ``type`` is to be added."""


def exported(
    tensors: Mapping[str, Tensor],
    layout: str,
    weights: Mapping[str, object],
    activations: Mapping[str, object] | None = None,
) -> ExportedLayer:
    """layout: such as ``pack-quantized``; activations: their scheme, None where they stay as they are."""
    return ExportedLayer(tensors, {"weights": weights, "input_activations": activations, "format": layout})


class CompressedTensorsExporter(Exporter):
    """Layers of the same scheme form a group of ``quantization_config``."""

    quant_method: ClassVar[str] = "compressed-tensors"

    def __init__(self, export: Callable[[str, Tensor], ExportedLayer]) -> None:
        """export: a layer's name and weight to what `exported` returns."""
        self._export = export

    def export(self, name: str, weight: Tensor) -> ExportedLayer:
        return self._export(name, weight)

    def config(
        self, layers: Mapping[str, Mapping[str, object]], unquantized: Sequence[str]
    ) -> Mapping[str, object]:
        names: dict[str, list[str]] = {}
        for layer, scheme in layers.items():
            names.setdefault(json.dumps(scheme), []).append(layer)
        schemes = [json.loads(scheme) for scheme in names]
        layouts = {scheme["format"] for scheme in schemes}
        groups = {
            f"group_{number}": {"targets": ["Linear"] if len(schemes) == 1 else sorted(members), **scheme}
            for number, (scheme, members) in enumerate(zip(schemes, names.values(), strict=True))
        }
        return {
            "quantization_status": "compressed",
            "format": layouts.pop() if len(layouts) == 1 else "mixed-precision",
            "config_groups": groups,
            "ignore": list(unquantized),
        }
