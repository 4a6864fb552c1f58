"""The compiled kernels as functions of tensors. The sources in ``native/`` say what each computes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from turnout.core.interfaces.compute import FusedKernels
from turnout.kernels import blocks, integers
from turnout.kernels.attention.rule import AttentionRule, plain_rule
from turnout.kernels.attention.stored import StoredVectors, as_stored
from turnout.kernels.blocks import BlockKernels
from turnout.kernels.build import BuiltLibrary
from turnout.kernels.integers import FLOAT, INT, LONG, POINTER, IntegerKernels, address
from turnout.kernels.memory.packed import PackedMemory
from turnout.kernels.threads import kernel_threads

__all__ = ["BlockTables", "CpuKernels", "PackedWeights", "cpu_kernels"]

WORTHWHILE = 1 << 16
"""Products from which on a second thread is faster than one alone; as in native/layers.cpp."""
EXCEPTIONS = 1 / 512
"""Of a layer's weights, which bytes for codes of exponents leave out, at most: else it is not compressed."""
SIGNATURES = {
    "turnout_panel": [],
    "turnout_is_bfloat16": [POINTER, LONG, INT],
    "turnout_large_pages": [POINTER, LONG],
    "turnout_populate": [POINTER, LONG],
    "turnout_pack": [POINTER] * 2 + [LONG] * 4 + [INT] * 2,
    "turnout_linear": [POINTER] * 4 + [LONG] * 4 + [INT] * 3,
    "turnout_gather": [POINTER] * 3 + [LONG] * 3 + [INT],
    "turnout_half_unit": [],
    "turnout_half_pack": [POINTER] * 2 + [LONG] * 3 + [INT],
    "turnout_half_linear": [POINTER] * 4 + [LONG] * 4 + [INT] * 2,
    "turnout_half_gather": [POINTER] * 3 + [LONG] * 2,
    "turnout_compress": [POINTER] * 2 + [LONG] * 5 + [POINTER, INT],
    "turnout_compressed_bytes": [LONG] * 3,
    "turnout_compressed_gather": [POINTER] * 3 + [LONG] * 3,
    "turnout_norm": [POINTER] * 4 + [LONG] * 2 + [FLOAT] + [INT] * 2,
    "turnout_gate": [POINTER] * 2 + [LONG] * 2 + [INT] * 2,
    "turnout_layer_norm": [POINTER] * 5 + [LONG] * 2 + [FLOAT] + [INT] * 2,
    "turnout_gelu": [POINTER] + [LONG] * 2 + [INT] * 3,
    "turnout_gelu_gate": [POINTER] * 2 + [LONG] * 2 + [INT] * 2,
    "turnout_rotate": [POINTER] * 3 + [LONG] * 4 + [INT] * 2,
    "turnout_write": [POINTER] * 3 + [LONG] * 4 + [INT] * 2,
    "turnout_attend": [POINTER] * 10 + [LONG] * 4 + [INT] * 2,
    **integers.SIGNATURES,
    **blocks.SIGNATURES,
    "turnout_layers": [POINTER, LONG, POINTER],
    "turnout_encode": [POINTER, POINTER, LONG, POINTER, POINTER],
    "turnout_experts": [POINTER, LONG, POINTER],
    "turnout_route": [POINTER] + [LONG] * 3 + [INT] * 2 + [POINTER] * 2 + [INT],
}


@dataclass(frozen=True)
class PackedWeights:
    """Weights of linear layers that read the same input, in the order in which a kernel reads them."""

    numbers: Tensor
    """Flat; float32, or bfloat16 where that loses nothing."""
    inputs: int
    outputs: int
    panels: int
    dtype: torch.dtype
    """Of inputs and outputs: float32, or bfloat16, for which weights lie in another order."""
    compressed: bool = False
    """Whether `numbers` are the bytes that native/compressed_halves.h describes."""


@dataclass(frozen=True)
class BlockTables:
    """Where a step's chunks and their contexts are. Tensors are int64 on the CPU."""

    block_size: int
    rows: Tensor
    """The first row of each chunk in the flat batch: [chunks]."""
    lengths: Tensor
    """Tokens of each chunk: [chunks]."""
    starts: Tensor
    """The position of each chunk's first token: [chunks]."""
    slots: Tensor
    """Where the blocks of each chunk's context begin: [chunks, most blocks]; past its end, anything."""


class CpuKernels:
    """The compiled library. Implements FusedKernels.

    Methods take tensors on the CPU, contiguous unless their docstrings say otherwise.
    """

    def __init__(self, built: BuiltLibrary) -> None:
        """Loads the library. Raises OSError if it is none."""
        library = ctypes.CDLL(str(built.path.absolute()))
        for name, arguments in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None
        library.turnout_panel.restype = LONG
        library.turnout_is_bfloat16.restype = INT
        library.turnout_layers.restype = library.turnout_experts.restype = INT
        library.turnout_integer_zero.restype = INT
        library.turnout_half_unit.restype = library.turnout_compressed_bytes.restype = LONG
        self.built = built
        self.library = library
        self._half_unit: int = library.turnout_half_unit()
        self._panel: int = library.turnout_panel()
        self._memory = PackedMemory(library.turnout_large_pages)
        self.integers = IntegerKernels(library, self._panel, self._memory)
        self.blocks = BlockKernels(library, self.integers)

    @property
    def variant(self) -> str:
        return self.built.variant

    # -------------------------------------------------------------- linear layers

    def is_bfloat16(self, numbers: Tensor) -> bool:
        """Says whether bfloat16 holds all of these float32 numbers exactly."""
        return bool(self.library.turnout_is_bfloat16(numbers.data_ptr(), numbers.numel(), kernel_threads()))

    def pack(self, weights: Sequence[Tensor]) -> PackedWeights:
        """Packs layers into one, with their outputs side by side.

        weights: float32 or bfloat16 [outputs, inputs] each.
        """
        half = _half(weights[0])
        if half and (compressed := self._compressed(weights)):
            return compressed
        narrow = half or all(self.is_bfloat16(weight) for weight in weights)
        inputs, outputs = weights[0].shape[1], sum(len(weight) for weight in weights)
        panels = -(-outputs // self._panel)
        depth = -(-inputs // self._half_unit) * self._half_unit if half else inputs
        dtype = torch.bfloat16 if narrow else torch.float32
        numbers = self._memory.room(panels * self._panel * depth, dtype=dtype)
        if outputs % self._panel:  # columns that no weight fills
            (numbers[-self._panel * depth :] if half else numbers).zero_()
        first = 0
        for weight in weights:
            place = weight.data_ptr(), numbers.data_ptr(), inputs, len(weight), first
            if half:
                self.library.turnout_half_pack(*place, kernel_threads())
            else:
                self.library.turnout_pack(*place, panels, narrow, kernel_threads())
            first += len(weight)
        return PackedWeights(numbers, inputs, outputs, panels, weights[0].dtype)

    def _compressed(self, weights: Sequence[Tensor]) -> PackedWeights | None:
        """Returns bfloat16 layers as one that is compressed; None: plain ones are better."""
        inputs, outputs = weights[0].shape[1], sum(len(weight) for weight in weights)
        room = int(inputs * outputs * EXCEPTIONS)
        size: int = self.library.turnout_compressed_bytes(inputs, outputs, room)
        if not size or any(len(weight) % self._panel for weight in weights[:-1]):
            return None
        numbers = self._memory.room(size, dtype=torch.uint8)
        used, first = LONG(0), 0
        for weight in weights:
            place = weight.data_ptr(), numbers.data_ptr(), inputs, len(weight), first, outputs
            self.library.turnout_compress(*place, room, ctypes.byref(used), kernel_threads())
            first += len(weight)
        if used.value > room:
            return None
        numbers = numbers[: self.library.turnout_compressed_bytes(inputs, outputs, used.value)]
        panels = -(-outputs // self._panel)
        return PackedWeights(numbers, inputs, outputs, panels, torch.bfloat16, compressed=True)

    def linear(self, x: Tensor, packed: PackedWeights, bias: Tensor | None) -> Tensor:
        """Computes a packed layer: x [rows, inputs] to [rows, outputs].

        x, `bias` [outputs] and the result have the dtype that the weights were packed for.
        """
        if x.dtype != packed.dtype:
            raise TypeError(f"this packed linear layer takes {packed.dtype}, not {x.dtype}")
        if x.shape[1] != packed.inputs:
            raise ValueError(f"{packed.inputs} inputs are expected, not {x.shape[1]}")
        if x.stride(1) != 1:
            x = x.contiguous()
        out = x.new_empty(x.shape[0], packed.outputs)
        threads = _threads(x.shape[0] * packed.inputs * packed.outputs)
        addresses = packed.numbers.data_ptr(), x.data_ptr(), address(bias), out.data_ptr()
        sizes = x.shape[0], packed.inputs, packed.outputs, x.stride(0)
        if _half(x):
            self.library.turnout_half_linear(*addresses, *sizes, packed.compressed, threads)
        else:
            self.library.turnout_linear(*addresses, *sizes, _half(packed.numbers), False, threads)
        return out

    def rows(self, packed: PackedWeights, tokens: Tensor) -> Tensor:
        """Returns rows of the weight, [tokens, inputs]. tokens: int64 [tokens], all below `outputs`."""
        out = torch.empty(tokens.shape[0], packed.inputs, dtype=packed.dtype)
        addresses = packed.numbers.data_ptr(), tokens.data_ptr(), out.data_ptr()
        sizes = tokens.shape[0], packed.inputs
        if packed.compressed:
            self.library.turnout_compressed_gather(*addresses, *sizes, packed.outputs)
        elif _half(out):
            self.library.turnout_half_gather(*addresses, *sizes)
        else:
            self.library.turnout_gather(*addresses, *sizes, packed.panels, _half(packed.numbers))
        return out

    # -------------------------------------------------------------- between them

    def norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """Returns the root mean square norm of x, after adding `delta` to x in place. x: [rows, size]."""
        out = torch.empty_like(x)
        delta = None if delta is None else delta.to(x.dtype).contiguous()
        if delta is not None and delta.shape != x.shape:
            raise ValueError(f"{list(delta.shape)} cannot be added to {list(x.shape)}")
        self.library.turnout_norm(
            x.data_ptr(),
            address(delta),
            weight.data_ptr(),
            out.data_ptr(),
            *x.shape,
            eps,
            _half(x),
            kernel_threads(),
        )
        return out

    def gate(self, both: Tensor) -> Tensor:
        """Returns silu of the first half of each row, times the second half. both: [rows, 2 * size]."""
        both = both.contiguous()
        rows, size = both.shape[0], both.shape[1] // 2
        out = both.new_empty(rows, size)
        self.library.turnout_gate(both.data_ptr(), out.data_ptr(), rows, size, _half(both), kernel_threads())
        return out

    def layer_norm(
        self, x: Tensor, delta: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float, out: Tensor
    ) -> Tensor:
        """Adds `delta` to x, [rows, size], in place, and writes the layer norm of the sum into `out`, which
        may be x.
        """
        tensors = (x, delta, weight, bias, out)
        if any(each is not None and (each.dtype != x.dtype or not each.is_contiguous()) for each in tensors):
            raise TypeError(f"a layer norm takes contiguous tensors of one dtype, {x.dtype}")
        self.library.turnout_layer_norm(
            *(address(each) for each in tensors), *x.shape, eps, _half(x), kernel_threads()
        )
        return out

    def gelu(self, x: Tensor, *, by_tanh: bool) -> Tensor:
        """Computes GELU of x, [rows, size], or its approximation by tanh, in place; returns x."""
        self.library.turnout_gelu(x.data_ptr(), *x.shape, by_tanh, _half(x), kernel_threads())
        return x

    def gelu_gate(self, both: Tensor) -> Tensor:
        """Returns GELU of the first half of each row, times the second half. both: [rows, 2 * size]."""
        out = both.new_empty(both.shape[0], both.shape[1] // 2)
        addresses = both.data_ptr(), out.data_ptr()
        self.library.turnout_gelu_gate(*addresses, *out.shape, _half(both), kernel_threads())
        return out

    def rotate(self, x: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Rotates x in place.

        x: [tokens, heads, head_dim], of any stride between tokens; cosine, sine: [tokens, 1, head_dim].
        """
        self.library.turnout_rotate(
            x.data_ptr(),
            cosine.data_ptr(),
            sine.data_ptr(),
            *x.shape,
            x.stride(0),
            _half(x),
            kernel_threads(),
        )

    # -------------------------------------------------------------- attention

    def enlarge_pages(self, memory: Tensor) -> None:
        """Asks the system for large pages behind `memory`, which must not have been touched yet."""
        self.library.turnout_large_pages(memory.data_ptr(), memory.nbytes)

    def populate(self, memory: Sequence[Tensor]) -> None:
        """Has the system give memory for what of `memory` was not written to yet, soon; its numbers stay.

        Where the system cannot, it gives memory as each page is first written to.
        """
        ranges = [number for each in memory for number in (each.data_ptr(), each.nbytes)]
        self.library.turnout_populate((LONG * len(ranges))(*ranges), len(memory))

    def write(self, rows: Tensor, pool: Tensor | StoredVectors, slots: Tensor) -> None:
        """Writes rows into their slots.

        rows: [tokens, heads, dim], copied if a token's do not lie side by side; pool: a layer's; slots: int64
        [tokens].
        """
        rows = _side_by_side(rows)
        self.library.turnout_write(
            rows.data_ptr(),
            ctypes.byref(as_stored(pool).struct),
            slots.data_ptr(),
            *rows.shape,
            rows.stride(0),
            _half(rows),
            kernel_threads(),
        )

    def attend(
        self,
        q: Tensor,
        keys: Tensor | StoredVectors,
        values: Tensor | StoredVectors,
        tables: BlockTables,
        rule: AttentionRule | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attends with q, by a rule, each chunk to its own context.

        q: [tokens, heads, key_dim], copied if a token's do not lie side by side; keys, values: a layer's, of
        kv_heads heads, of one dtype; sinks: float32 [heads]. rule: None: a plain one. Returns [tokens, heads,
        value_dim] in q's dtype, contiguous.
        """
        q = _side_by_side(q)
        tokens, heads, dim = q.shape
        keys, values = as_stored(keys), as_stored(values)
        if rule is None:
            rule = plain_rule(heads, keys.numbers.shape[1], dim)
        out = q.new_empty(tokens, heads, rule.value_dim)
        self.library.turnout_attend(
            ctypes.byref(rule),
            q.data_ptr(),
            ctypes.byref(keys.struct),
            ctypes.byref(values.struct),
            address(sinks),
            out.data_ptr(),
            tables.rows.data_ptr(),
            tables.lengths.data_ptr(),
            tables.starts.data_ptr(),
            tables.slots.data_ptr(),
            *tables.slots.shape,
            q.stride(0),
            tables.block_size,
            _half(q),
            kernel_threads(),
        )
        return out

    # -------------------------------------------------------------- all at once

    def layers(self, table: ctypes.Array[Any], step: ctypes.Structure) -> bool:
        """Computes the layers of `table` one after the other; see `turnout.kernels.layers`.

        Returns False if they are shares of ranks, one of which is gone.
        """
        return not self.library.turnout_layers(ctypes.byref(table), len(table), ctypes.byref(step))

    def encode(
        self,
        embeddings: ctypes.Structure,
        table: ctypes.Array[Any],
        last: ctypes.Structure,
        step: ctypes.Structure,
    ) -> None:
        """Computes a whole encoder; see `turnout.models.encoder.native_layers`."""
        given = (
            ctypes.byref(embeddings),
            ctypes.byref(table),
            len(table),
            ctypes.byref(last),
            ctypes.byref(step),
        )
        self.library.turnout_encode(*given)

    def route(self, scores: Tensor, top: int, *, normalized: bool) -> tuple[Tensor, Tensor]:
        """Takes the `top` experts with the highest scores of each token; of equal ones those that come first.

        scores: float32 or bfloat16 [tokens, experts]. Returns the experts, int64 [tokens, top], the likeliest
        first, and their likelihoods among all or, `normalized`, among these: float32 [tokens, top].
        """
        tokens, experts = scores.shape
        chosen = torch.empty(tokens, top, dtype=torch.int64)
        weights = torch.empty(tokens, top, dtype=torch.float32)
        sizes = tokens, experts, top
        found = chosen.data_ptr(), weights.data_ptr()
        self.library.turnout_route(
            scores.data_ptr(), *sizes, normalized, _half(scores), *found, kernel_threads()
        )
        return chosen, weights

    def experts(self, table: ctypes.Array[Any], count: int, mix: ctypes.Structure) -> bool:
        """Computes the experts of `table`, two linear layers each; see `turnout.kernels.experts`.

        Returns False if they are shares of ranks, one of which is gone.
        """
        return not self.library.turnout_experts(ctypes.byref(table), count, ctypes.byref(mix))


def cpu_kernels(kernels: FusedKernels | None) -> CpuKernels | None:
    """Returns `kernels` where they are the compiled ones of a CPU, else None."""
    return kernels if isinstance(kernels, CpuKernels) else None


def _half(x: Tensor) -> bool:
    """Says whether x is bfloat16, not float32. Raises TypeError for others, which a kernel would misread."""
    if x.dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"compiled kernels take float32 and bfloat16, not {x.dtype}")
    return x.dtype == torch.bfloat16


def _side_by_side(x: Tensor) -> Tensor:
    """Returns x, [tokens, heads, dim], or a copy of it in which a token's numbers lie side by side."""
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()


def _threads(products: int) -> int:
    return kernel_threads() if products > WORTHWHILE else 1
