"""Loads a checkpoint's weights: quantized while loading, quantized beforehand, or not at all."""

from __future__ import annotations

from torch import nn

from turnout.core.errors import (
    ConfigError,
    ModelError,
    NoRoom,
    TurnoutError,
    Unsupported,
    as_plugin_errors,
)
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Adopter
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec
from turnout.models.checkpoints.checkpoint import weight_files
from turnout.models.checkpoints.loading import check_files, load_model
from turnout.models.gguf.given import given_name
from turnout.models.meta_model import count_parameters
from turnout.models.sharding.plan import ShardPlan
from turnout.plugins.defaults import UNQUANTIZED
from turnout.runner.checkpoint import Checkpoint, read_by
from turnout.runner.memory.budget import format_bytes
from turnout.runner.memory.device import free_memory
from turnout.runner.model_family import ADAPTER, FoundModel

__all__ = ["load_weights", "quantization_of"]


def load_weights(
    registry: Registry,
    checkpoint: Checkpoint,
    quantization: str,
    context: ComputeContext,
    *,
    progress: bool = True,
    shards: ShardPlan | None = None,
) -> nn.Module:
    """Loads the model of `checkpoint`, quantized as the plugin spec `quantization` says.

    shards: what this rank has of it; None: all.

    Raises ConfigError where the checkpoint is quantized in another way, or where its weights do not fit.
    """
    adopter = _adopter(registry, checkpoint, quantization)
    plain = PluginSpec.parse(quantization).name == UNQUANTIZED
    if adopter is None and plain and (shards is None or shards.leads):  # of all ranks of a machine
        _check_room(checkpoint, context)
    try:
        return load_model(
            checkpoint.folder,
            checkpoint.family,
            checkpoint.spec,
            context,
            quantizer=adopter or registry.create("quantization", quantization),
            quantized=adopter is None and not plain,
            progress=progress,
            shards=shards,
        )
    except Unsupported as error:
        if adopter is None or not _adapter_has_layers(registry, checkpoint, context, adopter):
            raise
        raise ModelError(
            f"{error}; or --model-impl {ADAPTER}, whose layers are as they are stored"
        ) from error


def _adapter_has_layers(
    registry: Registry, checkpoint: Checkpoint, context: ComputeContext, adopter: Adopter
) -> bool:
    """Says whether transformers' modules have a place for all that is stored quantized."""
    folder, config = checkpoint.folder, checkpoint.config
    found = FoundModel(folder, config, config["architectures"][0], checkpoint.embedder)
    try:
        family, spec = read_by(registry, found, ADAPTER, trust_remote_code=False)
        check_files(folder, family, spec, context, adopter)
    except TurnoutError:
        return False
    return True


def _check_room(checkpoint: Checkpoint, context: ComputeContext) -> None:
    """Refuses weights that do not fit, before the system ends this process, or another one, for them."""
    device, dtype = context.device, context.dtype
    needed = count_parameters(checkpoint.family, checkpoint.spec) * dtype.itemsize
    if device.type == "cpu" and context.kernels is not None:  # packed weights keep the checkpoint's dtype
        needed = min(needed, sum(file.stat().st_size for file in weight_files(checkpoint.folder)))
    free = free_memory(device)
    if needed > free:
        kind = str(dtype).removeprefix("torch.")
        raise NoRoom(
            f"the weights take {format_bytes(needed)} in {kind}, but {device} has {format_bytes(free)} free; "
            "take a smaller model, --quantization, a smaller --dtype, or free memory, which `ulimit -v` also "
            "bounds"
        )


def quantization_of(checkpoint: Checkpoint, asked: str) -> str:
    """Names the quantization of its weights in memory."""
    method = (checkpoint.quantization or {}).get("quant_method")
    own = f"{method} (the checkpoint's own)"
    if method is None or PluginSpec.parse(asked).name in (UNQUANTIZED, method):
        return asked if method is None else own
    return f"{asked}, of {own}"


def _adopter(registry: Registry, checkpoint: Checkpoint, asked: str) -> Adopter | None:
    config = checkpoint.quantization
    if config is None:
        return None
    method, name = config.get("quant_method"), PluginSpec.parse(asked).name
    quantizer = (
        registry.create("quantization", str(method)) if method in registry.names("quantization") else None
    )
    if quantizer is not None and quantizer.decodes and name not in (UNQUANTIZED, method):
        return None
    if name not in (UNQUANTIZED, method):
        raise ConfigError(
            f"{given_name(checkpoint.folder)} is quantized already, by {method}; leave --quantization {name} "
            "out, or take the checkpoint with unquantized weights"
        )
    if quantizer is None:
        raise ModelError(
            f"{checkpoint.folder / 'config.json'}: quantization_config: quant_method = {method!r} is not "
            "supported; take the checkpoint with unquantized weights, and choose --quantization"
        )
    title = title_of(quantizer, "quantization")
    with as_plugin_errors(f"{title}: adopter"):
        adopter = quantizer.adopter(config)
    name_plugin(adopter, title)
    return adopter
