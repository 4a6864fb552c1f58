"""Loads weights from a checkpoint into a model, one tensor at a time.

Peak memory is the final weights and one tensor: the module is built without storage, each tensor is copied
from its file to where it will stay, and the file is unmapped before the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from turnout.core.errors import ConfigError, ModelError, Unsupported, as_plugin_errors
from turnout.core.interfaces.compute import ComputeContext, FusedKernels
from turnout.core.interfaces.layer_share import LayerShare
from turnout.core.interfaces.models import ModelCapabilities, ModelFamily
from turnout.core.interfaces.quantization import Adopter, Quantizer
from turnout.core.loading_progress import counted
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.process import bar_disabled
from turnout.core.types.model_spec import ModelSpec
from turnout.kernels import cpu_kernels
from turnout.models.checkpoints.index import (
    UNQUANTIZED,
    QuantizedLayer,
    TensorEntry,
    index_checkpoint,
    read_tensor,
    read_unconverted,
)
from turnout.models.checkpoints.malloc_trim import MallocTrim
from turnout.models.checkpoints.parameter_slots import ParameterSlot, parameter_slots
from turnout.models.checkpoints.rank_parts import of_rank, whole_layer
from turnout.models.checkpoints.replacement_check import ReplacementCheck
from turnout.models.checkpoints.siblings import Siblings
from turnout.models.checkpoints.stacked_tensor import StackedTensor
from turnout.models.checkpoints.stored_layers import ReorderedLinear, row_order, weight_of
from turnout.models.decoder.decoder import Decoder
from turnout.models.decoder.fused import fuse_layers, pack_complete, pack_rest
from turnout.models.decoder.fused_experts import fuse_experts
from turnout.models.decoder.grouped_experts import group_experts
from turnout.models.decoder.latent_attention import HeadExpansion
from turnout.models.decoder.layers import is_linear
from turnout.models.decoder.native_stack import use_native_stack
from turnout.models.decoder.packed import PackedEmbedding, layer_capabilities
from turnout.models.encoder.fused import fuse_encoder
from turnout.models.encoder.native_stack import use_native_encoder
from turnout.models.meta_model import meta_model
from turnout.models.sharding.declared import cut_parameters
from turnout.models.sharding.layers import join_ranks
from turnout.models.sharding.plan import ShardPlan
from turnout.models.sharding.stages import Stage

__all__ = ["check_files", "load_model"]

logger = logging.getLogger(__name__)


def load_model(
    folder: Path,
    family: ModelFamily,
    spec: ModelSpec,
    context: ComputeContext,
    *,
    quantizer: Quantizer | Adopter | None = None,
    quantized: bool = False,
    progress: bool = True,
    shards: ShardPlan | None = None,
) -> nn.Module:
    """Build the family's module and fill it from the checkpoint in `folder`.

    A quantizer converts the linear layers that it wants as soon as their weights are complete; an adopter
    builds those that are stored quantized. Where the context has kernels, the shared layers compute by them,
    and other linear layers are packed for them, as early as possible. Raises ModelError, naming tensor and
    file, unless the checkpoint holds exactly the model's tensors; ConfigError if it is to be `quantized` and
    the quantizer wants none of its layers.

    shards: what of each parameter this rank has; None: all.
    """
    kernels = context.kernels
    adopter = quantizer if isinstance(quantizer, Adopter) else None
    module = meta_model(family, spec if shards is None else shards.spec)
    elsewhere = set() if shards is None else shards.leave_to_others(module)
    if shards is not None and not isinstance(module, Decoder):
        cut_parameters(module, shards.parts)
    module = _fused(module, kernels)
    name_plugin(module, title_of(family, "model"))
    siblings = None if kernels is None else Siblings(module, kernels)
    slots = parameter_slots(module)
    held, kv_scales = ((), ()) if adopter is None else (adopter.held_blocks(context), adopter.kv_scales)
    adoptable = _adoptable(module, adopter, held)
    index = index_checkpoint(folder, family, slots, adoptable, held, elsewhere, kv_scales)
    if index.ignored and (shards is None or shards.leads):
        logger.warning(
            "%d scales of the KV cache in the checkpoint, such as %s, are ignored: --kv-cache-dtype says how "
            "KV is stored",
            len(index.ignored),
            index.ignored[0],
        )
    loader = _Loader(module, context, index.quantized, shards)
    shown = tqdm(index.units, desc="loading weights", unit="tensor", disable=bar_disabled(progress))
    for unit in counted(index.units, shown):
        if isinstance(unit, QuantizedLayer):
            assert adopter is not None
            with _naming_file(unit):
                loader.adopt(unit, adopter)
            complete, freed = [unit.name, *unit.tied], 0
        else:
            slot = slots[unit.name]
            if not loader.fill(slot, unit):
                continue
            converted = isinstance(quantizer, Quantizer) and loader.convert(slot, quantizer)
            replaced = converted or kernels is not None  # which packs what is left
            complete, freed = slot.layers, slot.shape.numel() * context.dtype.itemsize if replaced else 0
        if kernels is not None and siblings is not None:
            pack_complete(module, siblings.join_complete(complete), kernels)
        loader.freed.add(freed)
    if quantized and quantizer is not None and not loader.converted:
        raise ConfigError(
            f"{_title(quantizer)} wants none of the layers of {type(family).__name__}, so nothing would be "
            "quantized; choose another quantization, or none"
        )
    loader.check_filled()
    if kernels is not None:
        pack_rest(module, kernels)
    loader.freed.trim()
    _place_buffers(module, context.device)
    join_ranks(module, shards)
    if shards is not None and shards.stage is not None:
        module = Stage(module, shards.stage, replace(spec, vocab_size=shards.vocab_size), context.dtype)
    return module.eval()


def check_files(
    folder: Path, family: ModelFamily, spec: ModelSpec, context: ComputeContext, adopter: Adopter
) -> None:
    """Raises ModelError, as `load_model` does, unless all that is in the files has a place in the model."""
    module, held = meta_model(family, spec), adopter.held_blocks(context)
    adoptable = _adoptable(module, adopter, held)
    index_checkpoint(folder, family, parameter_slots(module), adoptable, held, ignored=adopter.kv_scales)


def _fused(module: nn.Module, kernels: FusedKernels | None) -> nn.Module:
    """Returns the module with shared layers exchanged for those that the kernels compute."""
    if kernels is None:
        return module
    compiled = cpu_kernels(kernels)
    if compiled is not None:
        module = use_native_encoder(module, compiled)
    fuse_layers(module, kernels)
    fuse_encoder(module, kernels)
    if compiled is not None:
        use_native_stack(module, compiled)
        fuse_experts(module, compiled)
    else:
        group_experts(module, kernels)
    return module


def _adoptable(module: nn.Module, adopter: Adopter | None, held: Collection[str]) -> Mapping[str, nn.Module]:
    """The layers that may be stored quantized, by name.

    held: the kinds of blocks that the adopter takes; other layers than those are read from files of blocks as
    floating-point numbers.
    """
    if adopter is None:
        return {}
    embeddings = (nn.Embedding,) if adopter.embeddings else ()
    expansions = () if held else (HeadExpansion,)
    kinds = (nn.Linear, *embeddings, *expansions)
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, kinds)}


class _Loader:
    """Puts tensors and layers into the module, and returns freed memory to the system."""

    def __init__(
        self,
        module: nn.Module,
        context: ComputeContext,
        quantized: Mapping[str, QuantizedLayer],
        shards: ShardPlan | None,
    ) -> None:
        """quantized: the layers that are stored quantized, by name."""
        self._shards = shards
        self.module, self.context, self.quantized = module, context, quantized
        self.freed = MallocTrim()
        self.converted = 0
        """Layers that the quantizer has converted."""
        self._check = ReplacementCheck(context.device, context.dtype)
        self._stacks: dict[str, StackedTensor] = {}
        declared: ModelCapabilities = getattr(module, "capabilities", ModelCapabilities())
        more = declared.float32_in_float16 if context.dtype is torch.float16 else ()
        self._wide = [f".{part}." for part in (*declared.float32, *more)]

    def fill(self, slot: ParameterSlot, entry: TensorEntry) -> bool:
        """Read a parameter, or a part of one, and set it under all its names once it is complete."""
        device, dtype = self.context.device, self._dtype(slot)
        if self._shards is not None:
            entry = of_rank(entry, slot, self._shards)
        if entry.placement.into:
            stack = self._stacks.get(slot.name) or StackedTensor(slot.shape, device, dtype)
            self._stacks[slot.name] = stack
            if not stack.fill(entry):
                return False
            value = self._stacks.pop(slot.name).tensor
        else:
            value = read_tensor(entry, slot.shape, device, dtype)
        parameter = nn.Parameter(value, requires_grad=False)
        for name in slot.names:
            layer, _, attribute = name.rpartition(".")
            if layer not in self.quantized:
                setattr(self.module.get_submodule(layer), attribute, parameter)
        return True

    def _dtype(self, slot: ParameterSlot) -> torch.dtype:
        named = f".{slot.name}."
        return torch.float32 if any(part in named for part in self._wide) else self.context.dtype

    def check_filled(self) -> None:
        """Raises ModelError for a parameter that is filled in part."""
        for name, stack in self._stacks.items():
            filled = f"{stack.filled:,} of the {stack.size:,} numbers"
            raise ModelError(f"the checkpoint fills only {filled} of {name!r}; fetch it again")

    def adopt(self, stored: QuantizedLayer, adopter: Adopter) -> None:
        """Read a layer that is stored quantized, and put it in place."""
        name, context = stored.name, self.context
        tensors = {part: read_unconverted(entry, context.device) for part, entry in stored.parts.items()}
        if "bias" in tensors:
            tensors["bias"] = tensors["bias"].to(context.dtype)
        rows = None
        layers = {each: self.module.get_submodule(each) for each in (name, *stored.tied)}
        if stored.change is not None and not all(isinstance(layer, nn.Linear) for layer in layers.values()):
            raise _not_reordered(name)
        for each, layer in layers.items():
            if isinstance(layer, nn.Linear):
                share = self._share_of(each, layer)
                like, given = whole_layer(layer, share), self._with_share(share, adopter)
                assert isinstance(like, nn.Linear)
                with as_plugin_errors(f"{_title(adopter)} on {each}: adopt"):
                    made = adopter.adopt(stored.stored_name, tensors, like, given)
                    adopted = self._check.checked(made, layer)
                if stored.change is not None:
                    adopted = ReorderedLinear(adopted, self._order(stored, each, like.out_features, share))
                rows = layer_capabilities(adopted).rows
                self._place_adopted(each, adopted, adopter)
            elif isinstance(layer, HeadExpansion):
                self._decode_into(layer, stored, tensors, adopter)
        for each, layer in layers.items():
            if isinstance(layer, nn.Embedding):
                self._adopt_embedding(each, layer, tensors, rows, adopter)
        self.freed.add(sum(tensor.nbytes for tensor in tensors.values()))

    def _order(self, stored: QuantizedLayer, name: str, outputs: int, share: LayerShare | None) -> Tensor:
        """Returns the order in which this rank has a layer's outputs. Raises ModelError if it has none."""
        assert stored.change is not None
        order = row_order(stored.change, outputs)
        if order is not None and share is not None:
            order = order[share.outputs.start : share.outputs.stop] - share.outputs.start
            within = len(order) == len(share.outputs) and bool(((order >= 0) & (order < len(order))).all())
            order = order if within else None
        if order is None:
            raise _not_reordered(name)
        return order.to(self.context.device)

    def _decode_into(
        self, layer: HeadExpansion, stored: QuantizedLayer, tensors: Mapping[str, Tensor], adopter: Adopter
    ) -> None:
        """Sets the weight of a layer that is stored quantized and computed otherwise than by its rows."""
        name = stored.name
        part = None if self._shards is None else self._shards.parts.get(f"{name}.weight")
        assert layer.weight is not None
        outputs, inputs = layer.weight.shape
        outputs = outputs if part is None else part.whole
        like = nn.Linear(inputs, outputs, bias=False, device="meta")
        with as_plugin_errors(f"{_title(adopter)} on {name}: adopt"):
            made = adopter.adopt(stored.stored_name, tensors, like, self.context)
            adopted = self._check.checked(made, like)
            weight = weight_of(adopted, inputs, self.context.device, self.context.dtype)
        weight = weight if part is None else part.of(weight).clone()
        layer.weight = nn.Parameter(weight, requires_grad=False)

    def _adopt_embedding(
        self,
        name: str,
        layer: nn.Embedding,
        tensors: Mapping[str, Tensor],
        rows: Callable[[Tensor], Tensor] | None,
        adopter: Adopter,
    ) -> None:
        """rows: of the head that the embedding is tied to."""
        share = self._share_of(name, layer)
        like, context = whole_layer(layer, share), self._with_share(share, adopter)
        assert isinstance(like, nn.Embedding)
        with as_plugin_errors(f"{_title(adopter)} on {name}: adopt_embedding"):
            table = (
                adopter.adopt_embedding(name, tensors, like, context)
                if rows is None
                else PackedEmbedding(rows, context.dtype)
            )
        self._place_adopted(name, table, adopter)

    def _share_of(self, name: str, layer: nn.Linear | nn.Embedding) -> LayerShare | None:
        """Returns what this rank has of a layer; None: all."""
        return None if self._shards is None else self._shards.share_of(name, layer)

    def _with_share(self, share: LayerShare | None, by: Quantizer | Adopter) -> ComputeContext:
        """Returns the context in which `by` makes a layer. Raises ConfigError if it cannot divide one."""
        if share is not None and not by.divides and (isinstance(by, Adopter) or share.splits_inputs):
            raise ConfigError(
                f"{_title(by)} cannot quantize layers that ranks divide, such as {share.layer}; leave "
                "--tensor-parallel-size out, or choose another quantization"
            )
        return replace(self.context, share=share)

    def _place_adopted(self, name: str, adopted: nn.Module, adopter: Adopter) -> None:
        name_plugin(adopted, _title(adopter))
        self.module.set_submodule(name, adopted)

    def convert(self, slot: ParameterSlot, quantizer: Quantizer) -> bool:
        """Replace the layers that `slot` completed and the quantizer wants; says if there are any."""
        linear = [self._convert_linear(name, quantizer) for name in slot.layers]
        return self._convert_embedding(slot, quantizer) or any(linear)

    def _convert_linear(self, name: str, quantizer: Quantizer) -> bool:
        """Replace the layer if it is a complete linear layer that the quantizer wants; says if it did."""
        layer = self.module.get_submodule(name)
        if not is_linear(layer) or any(value.is_meta for value in layer.parameters()):
            return False
        share = self._share_of(name, layer)
        like = whole_layer(layer, share)
        assert isinstance(like, nn.Linear)
        with as_plugin_errors(f"{_title(quantizer)} on {name}: wants"):
            if not quantizer.wants(name, like):
                return False
        context = self._with_share(share, quantizer)
        with as_plugin_errors(f"{_title(quantizer)} on {name}: convert_named"):
            converted = self._check.checked(quantizer.convert_named(name, layer, context), layer)
        name_plugin(converted, _title(quantizer))
        self.converted += 1
        self.module.set_submodule(name, converted)
        return True

    def _convert_embedding(self, slot: ParameterSlot, quantizer: Quantizer) -> bool:
        """Replace the embedding if the quantizer wants it; says if it did.

        An embedding that is tied to a converted head reads the head's weights, where it can look up rows.
        """
        layers = {name: self.module.get_submodule(name) for name in slot.layers}
        readable = (rows for layer in layers.values() if (rows := layer_capabilities(layer).rows) is not None)
        head_rows = next(readable, None)
        for name, layer in layers.items():
            if isinstance(layer, nn.Embedding) and self._wants_embedding(name, quantizer):
                with as_plugin_errors(f"{_title(quantizer)} on {name}: convert_embedding"):
                    if head_rows is not None:
                        made: nn.Module = PackedEmbedding(head_rows, self.context.dtype)
                    else:
                        made = quantizer.convert_embedding(layer, self.context)
                    name_plugin(made, _title(quantizer))
                    self.converted += 1
                    self.module.set_submodule(name, made)
                return True
        return False

    def _wants_embedding(self, name: str, quantizer: Quantizer) -> bool:
        with as_plugin_errors(f"{_title(quantizer)} on {name}: wants_embedding"):
            return quantizer.wants_embedding(name)


@contextmanager
def _naming_file(stored: QuantizedLayer) -> Iterator[None]:
    """Names the file of a layer in errors of adopters, which know its tensors alone."""
    try:
        yield
    except ModelError as error:
        path = next(iter(stored.parts.values())).file.path
        if str(path) in str(error):
            raise
        raise ModelError(f"{path}: {error}") from error


def _not_reordered(layer: str) -> Unsupported:
    return Unsupported(
        f"{layer} is stored quantized, and the model changes its numbers, which only weights that are not "
        f"quantized can; {UNQUANTIZED}"
    )


def _title(quantizer: Quantizer | Adopter) -> str:
    return title_of(quantizer, "quantization")


def _place_buffers(module: nn.Module, device: torch.device) -> None:
    """Move buffers, which families build on the CPU from the config, to the device; they keep their dtype."""
    for path, owner in module.named_modules():
        # A list: setting a parameter that was registered as a buffer removes it from the module's buffers.
        for name, buffer in list(owner.named_buffers(recurse=False)):
            if buffer.is_meta:
                raise ModelError(
                    f"the buffer {path}.{name} has no values; the model family must create its "
                    "buffers on an explicit device"
                )
            setattr(owner, name, buffer.to(device))
