"""Weights from safetensors into a model, one tensor at a time.

Peak memory is the final weights and one tensor: the module is built without storage, each tensor is
copied from its file to where it will stay, and the file is unmapped again before the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from turnout.core.errors import ModelError, as_plugin_errors
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.models import ModelFamily
from turnout.core.interfaces.quantization import Adopter, Quantizer
from turnout.core.types.model_spec import ModelSpec
from turnout.kernels import cpu_kernels
from turnout.models.blueprint import blueprint, linear_layers
from turnout.models.checkpoints.index import StoredLayer, find_stored, read, read_as_it_is
from turnout.models.checkpoints.malloc_trim import FreedMemory
from turnout.models.checkpoints.slots import Slot, slots_of
from turnout.models.checkpoints.width_check import WidthCheck
from turnout.models.decoder.fused import fuse_layers, pack_complete, pack_rest
from turnout.models.decoder.native_stack import use_native_stack
from turnout.models.decoder.packed import PackedEmbedding, layer_capabilities

__all__ = ["load_model"]


def load_model(
    folder: Path,
    family: ModelFamily,
    spec: ModelSpec,
    context: ComputeContext,
    *,
    quantizer: Quantizer | Adopter | None = None,
    progress: bool = True,
) -> nn.Module:
    """Build the family's module and fill it from the checkpoint in `folder`.

    Linear layers that a quantizer wants are converted as soon as their weights are complete; those that are
    stored quantized are built by an adopter. With `kernels` the shared layers compute by them, and other
    linear layers are packed for them, as soon as that can be. Raises ModelError, naming tensor and file,
    unless the checkpoint holds exactly the model's tensors.
    """
    device, dtype, kernels = context.device, context.dtype, context.kernels
    adopter = quantizer if isinstance(quantizer, Adopter) else None
    module = blueprint(family, spec)
    if kernels is not None:
        fuse_layers(module, kernels)
        compiled = cpu_kernels(kernels)
        if compiled is not None:
            use_native_stack(module, compiled)
    slots = slots_of(module)
    stored = find_stored(folder, family, slots, linear_layers(module) if adopter else {})
    freed, widths = FreedMemory(), WidthCheck(device, dtype)
    # tqdm stays silent on its own (disable=None) where stderr is not a terminal.
    for unit in tqdm(stored.units, desc="loading weights", unit="tensor", disable=None if progress else True):
        if isinstance(unit, StoredLayer):
            assert adopter is not None
            freed.add(_adopt(module, unit, adopter, context, widths))
            complete = [unit.name]
        else:
            slot = slots[unit.name]
            _fill(module, slot, read(unit, slot, device, dtype), stored.quantized)
            if isinstance(quantizer, Quantizer) and _convert(module, slot, quantizer, context, widths):
                freed.add(slot.shape.numel() * dtype.itemsize)
            complete = slot.layers
        if kernels is not None:
            pack_complete(module, complete, kernels)
    if kernels is not None:
        pack_rest(module, kernels)
    freed.give_back()
    _place_buffers(module, device)
    return module.eval()


def _fill(module: nn.Module, slot: Slot, value: Tensor, quantized: Mapping[str, StoredLayer]) -> None:
    parameter = nn.Parameter(value, requires_grad=False)
    for name in slot.names:
        layer, _, attribute = name.rpartition(".")
        if layer not in quantized:
            setattr(module.get_submodule(layer), attribute, parameter)


def _adopt(
    module: nn.Module,
    stored: StoredLayer,
    adopter: Adopter,
    context: ComputeContext,
    widths: WidthCheck,
) -> int:
    """Put a layer in place that is stored quantized; returns the bytes that were read for it."""
    name = stored.name
    tensors = {part: read_as_it_is(entry, context.device) for part, entry in stored.parts.items()}
    if "bias" in tensors:
        tensors["bias"] = tensors["bias"].to(context.dtype)
    like = module.get_submodule(name)
    assert isinstance(like, nn.Linear)
    with as_plugin_errors(f"{type(adopter).__name__} on {name}"):
        module.set_submodule(name, widths.checked(adopter.adopt(name, tensors, like, context), like))
    return sum(tensor.nbytes for tensor in tensors.values())


def _convert(
    module: nn.Module, slot: Slot, quantizer: Quantizer, context: ComputeContext, widths: WidthCheck
) -> bool:
    """Replace the layers that `slot` completed, where the quantizer wants to; were there any?"""
    converted = False
    for name in slot.layers:
        layer = module.get_submodule(name)
        if not isinstance(layer, nn.Linear) or any(value.is_meta for value in layer.parameters()):
            continue
        with as_plugin_errors(f"quantizer {type(quantizer).__name__} on {name}"):
            if quantizer.wants(name, layer):
                made = quantizer.convert_named(name, layer, context)
                module.set_submodule(name, widths.checked(made, layer))
                converted = True
    return _convert_embedding(module, slot, quantizer, context) or converted


def _convert_embedding(module: nn.Module, slot: Slot, quantizer: Quantizer, context: ComputeContext) -> bool:
    """The embedding reads what the head that it is tied to has become, where it can."""
    layers = {name: module.get_submodule(name) for name in slot.layers}
    readable = (rows for layer in layers.values() if (rows := layer_capabilities(layer).rows) is not None)
    head_rows = next(readable, None)
    for name, layer in layers.items():
        if isinstance(layer, nn.Embedding) and quantizer.wants_embedding(name):
            with as_plugin_errors(f"quantizer {type(quantizer).__name__} on {name}"):
                if head_rows is not None:
                    made: nn.Module = PackedEmbedding(head_rows, context.dtype)
                else:
                    made = quantizer.convert_embedding(layer, context)
                module.set_submodule(name, made)
            return True
    return False


def _place_buffers(module: nn.Module, device: torch.device) -> None:
    """Buffers follow from the config and are built on the CPU; they keep their own dtype."""
    for path, owner in module.named_modules():
        # A list: setting a parameter that was registered as a buffer removes it from the module's buffers.
        for name, buffer in list(owner.named_buffers(recurse=False)):
            if buffer.is_meta:
                raise ModelError(
                    f"the buffer {path}.{name} has no values; a family must create its buffers on an "
                    "explicit device"
                )
            setattr(owner, name, buffer.to(device))
