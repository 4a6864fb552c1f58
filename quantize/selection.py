"""Checks, before anything is written, that a quantizer can store what it wants of a model."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from turnout.core.errors import ConfigError, PluginError, as_plugin_errors
from turnout.core.interfaces.quantization import Exporter, Quantizer
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.registry.registry import Registry
from turnout.models.meta_model import linear_layers

__all__ = ["LayerSelection", "exporter_of", "select_layers"]

INSTEAD = "choose options that leave it as it is, or quantize while the model is loaded, with turnout serve"


class LayerSelection(NamedTuple):
    """Names of a model's linear layers."""

    quantized: frozenset[str]
    unquantized: list[str]


def exporter_of(registry: Registry, name: str, quantizer: Quantizer) -> Exporter:
    """What stores the quantizer's layers.

    Raises ConfigError where it has no exporter, PluginError where no quantizer would read the result.
    """
    with as_plugin_errors(f"{title_of(quantizer, 'quantization')}: exporter"):
        exporter = quantizer.exporter()
    if exporter is None:
        raise ConfigError(
            f"quantization {name!r} cannot be stored in a checkpoint, because its quantizer has no exporter; "
            "choose int8, int8wo, int4wo, fp8 or fp8wo, or quantize while the model is loaded, with turnout "
            "serve"
        )
    if exporter.quant_method not in registry.names("quantization"):
        raise PluginError(
            f"the exporter of quantizer {name} writes checkpoints of quant_method {exporter.quant_method!r}, "
            "but no quantizer has this name, so nothing could read them; the plugin should register one with "
            "an adopter"
        )
    name_plugin(exporter, title_of(quantizer, "quantization"))
    return exporter


def select_layers(module: nn.Module, quantization: str, quantizer: Quantizer) -> LayerSelection:
    """Ask the quantizer which layers of a model, built without values, it wants.

    Raises ConfigError where it wants one that cannot be stored quantized.
    """
    linear = linear_layers(module)
    embeddings = {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Embedding)}
    tied = {id(embedding.weight) for embedding in embeddings.values()}
    title = title_of(quantizer, "quantization")
    with as_plugin_errors(f"{title}: wants"):
        wanted = [name for name, layer in linear.items() if quantizer.wants(name, layer)]
    with as_plugin_errors(f"{title}: wants_embedding"):
        wanted_embeddings = [name for name in embeddings if quantizer.wants_embedding(name)]
    for name in wanted_embeddings:
        raise ConfigError(
            f"quantization {quantization!r} wants {name}, but an embedding is stored as it is; {INSTEAD}"
        )
    for name in wanted:
        if id(linear[name].weight) in tied:
            raise ConfigError(
                f"quantization {quantization!r} wants {name}, which in this model is its embedding too, and "
                f"stored once; {INSTEAD}"
            )
    return LayerSelection(frozenset(wanted), sorted(linear.keys() - wanted))
