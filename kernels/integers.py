"""Linear layers of 8 or 4 bits, as functions of tensors. The source in ``native/`` says what they compute."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor
from torch.nn.functional import pad

from turnout.kernels.memory.packed import PackedMemory
from turnout.kernels.threads import kernel_threads

__all__ = [
    "FLOAT",
    "INT",
    "LONG",
    "POINTER",
    "SIGNATURES",
    "IntegerKernels",
    "IntegerWeights",
    "Precision",
    "address",
    "adds_integers",
    "joint_bias",
    "magnitudes",
    "together",
]

POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
SIGNATURES = {
    "turnout_integer_zero": [],
    "turnout_bytes_unit": [],
    "turnout_integer_linear": [POINTER] * 7 + [LONG] * 6 + [INT, FLOAT] + [INT] * 2 + [POINTER],
    "turnout_integer_exact": [POINTER] * 5 + [LONG] * 5 + [FLOAT] + [INT] * 2 + [POINTER],
    "turnout_integer_finish": [POINTER] * 5 + [LONG] * 2 + [FLOAT] + [INT] * 2,
    "turnout_integer_encode": [POINTER] * 3 + [LONG] * 2 + [INT] * 2,
    "turnout_integer_pack": [POINTER] * 2 + [LONG] * 3 + [INT],
    "turnout_integer_sums": [POINTER] * 2 + [LONG] * 3 + [INT],
}

UNIT = 8
"""Inputs come in multiples of this, or of more for a library by tiles; missing ones are zeros."""
PIECE = 256
"""Inputs whose products are summed as integers, as in the source. Groups divide it or are its multiples."""
PIECE_OF_BYTES = 65536
"""The same for W8A8."""
WORTHWHILE = 1 << 17
"""Products from which on a second thread is faster than one alone."""


class Precision(Enum):
    """The bits of weights and of activations, and with them the order of codes."""

    W8A8 = 0
    W8A16 = 1
    W4A16 = 2


CODES = {Precision.W8A8: 4, Precision.W8A16: 4, Precision.W4A16: 8}
"""The codes of a word of 32 bits, in which those of a column are read."""
SCALES = {Precision.W8A8: torch.float32, Precision.W8A16: torch.float32, Precision.W4A16: torch.bfloat16}


@dataclass(frozen=True)
class IntegerWeights:
    """weight = code · scale + offset, for 4 bits (code - 8), in the order in which the kernels read them."""

    numbers: Tensor
    """Codes: int32 [panels, words, panel]."""
    shift: Tensor | None
    """int32 [panels, pieces, panel]: what the zero point of W8A8's activations adds to a sum, negated."""
    scale: Tensor
    """[panels, groups, panel]; float32, or bfloat16 for 4 bits."""
    offset: Tensor | None
    """As `scale`; None: zeros."""
    bias: Tensor | None
    """float32 [panels · panel]."""
    inputs: int
    outputs: int
    precision: Precision
    group: int
    """Inputs that share a scale."""

    @property
    def depth(self) -> int:
        """The inputs, and the zeros behind them."""
        return self.numbers.shape[1] * CODES[self.precision]


class IntegerKernels:
    """The kernels of integer weights. They round activations to integers, too, with a scale for each row."""

    def __init__(self, library: ctypes.CDLL, panel: int, memory: PackedMemory) -> None:
        """memory: for what is packed."""
        self._library, self.memory = library, memory
        self._zero: int = library.turnout_integer_zero()
        library.turnout_bytes_unit.restype = LONG
        self._units = dict.fromkeys(Precision, UNIT) | {Precision.W8A8: library.turnout_bytes_unit()}
        self.panel = panel

    def takes(self, inputs: int, groups: int) -> bool:
        """Says whether a layer of so many inputs, in so many groups, can be packed."""
        group = inputs // groups
        return groups == 1 or (
            groups * group == inputs and group % UNIT == 0 and (PIECE % group == 0 or group % PIECE == 0)
        )

    def encode(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Encodes float32 or bfloat16 [outputs, inputs] as codes from -127 to 127, and scales.

        Returns int8 [outputs, inputs] and float32 [outputs]: weight ≈ codes · scale.
        """
        weight = weight.contiguous()
        codes = torch.empty(weight.shape, dtype=torch.int8)
        scale = torch.empty(len(weight), dtype=torch.float32)
        self._library.turnout_integer_encode(
            weight.data_ptr(),
            codes.data_ptr(),
            scale.data_ptr(),
            *weight.shape,
            weight.dtype == torch.bfloat16,
            kernel_threads(),
        )
        return codes, scale

    def pack(
        self, precision: Precision, codes: Tensor, scale: Tensor, offset: Tensor | None, bias: Tensor | None
    ) -> IntegerWeights:
        """Packs a layer. codes: int8 [outputs, inputs], for 4 bits uint8 from 0 to 15.

        scale, offset: float32 [outputs, groups]; W8A8 has one group and no offset.
        """
        outputs, inputs = codes.shape
        unit, groups = self._units[precision], scale.shape[1]
        depth = -(-inputs // unit) * unit
        if not self.takes(inputs, groups):
            raise ValueError(f"{inputs} inputs in {groups} groups cannot be packed")
        more = -outputs % self.panel
        codes = codes.contiguous()
        return IntegerWeights(
            self._in_panels(_nibbles(codes) if precision is Precision.W4A16 else codes, precision, depth),
            self._shift(codes, more) if precision is Precision.W8A8 else None,
            self._by_panel(scale, more).to(SCALES[precision]),
            None if offset is None else self._by_panel(offset, more).to(SCALES[precision]),
            None if bias is None else pad(bias.float(), (0, more)),
            inputs,
            outputs,
            precision,
            depth if groups == 1 else inputs // groups,
        )

    def joins(self, parts: Sequence[IntegerWeights]) -> bool:
        """Says whether layers that read the same input can become one, with outputs side by side."""
        alike = {(part.inputs, part.precision, part.group, part.offset is None) for part in parts}
        return len(alike) == 1 and all(part.outputs % self.panel == 0 for part in parts)

    def join(self, parts: Sequence[IntegerWeights]) -> IntegerWeights:
        """Makes one layer of `parts`, for which `joins` says yes."""
        first = parts[0]
        numbers = [part.numbers for part in parts]
        panels = sum(len(each) for each in numbers)
        return IntegerWeights(
            torch.cat(numbers, out=self.memory.room(panels, *numbers[0].shape[1:], dtype=numbers[0].dtype)),
            together([part.shift for part in parts]),
            torch.cat([part.scale for part in parts]),
            together([part.offset for part in parts]),
            joint_bias([part.bias for part in parts], [part.outputs for part in parts]),
            first.inputs,
            sum(part.outputs for part in parts),
            first.precision,
            first.group,
        )

    def levels(self, precision: Precision) -> int:
        """Returns what the largest activation of a token is rounded to: of 7 bits where 8 would overflow."""
        return self._zero - 1 if precision is Precision.W8A8 else 2**15 - 1

    def linear(self, x: Tensor, weights: IntegerWeights, largest: Tensor | None = None) -> Tensor:
        """Computes a packed layer: x, float32 or bfloat16 [rows, inputs], to [rows, outputs] in x's dtype.

        largest: magnitudes by which rows are rounded, float32 [rows]; None: the largest of each.
        """
        x = _in_rows(x, weights)
        rows = x.shape[0]
        out = x.new_empty(rows, weights.outputs)
        self._library.turnout_integer_linear(
            weights.numbers.data_ptr(),
            address(weights.shift),
            weights.scale.data_ptr(),
            address(weights.offset),
            address(weights.bias),
            x.data_ptr(),
            out.data_ptr(),
            rows,
            weights.inputs,
            weights.depth,
            weights.outputs,
            weights.group,
            x.stride(0),
            weights.precision.value,
            self.levels(weights.precision),
            x.dtype == torch.bfloat16,
            _threads(rows, weights),
            address(largest),
        )
        return out

    def sums(self, x: Tensor, weights: IntegerWeights, largest: Tensor) -> Tensor:
        """Computes what ranks add up of a W8A8 layer whose inputs they share: int32 [rows, whole panels].

        largest: magnitudes by which all ranks round rows, float32 [rows].
        """
        x = _in_rows(x, weights)
        rows = x.shape[0]
        sums = torch.empty(rows, len(weights.numbers) * self.panel, dtype=torch.int32)
        self._library.turnout_integer_exact(
            weights.numbers.data_ptr(),
            address(weights.shift),
            weights.scale.data_ptr(),
            x.data_ptr(),
            sums.data_ptr(),
            rows,
            weights.inputs,
            weights.depth,
            weights.outputs,
            x.stride(0),
            self.levels(weights.precision),
            x.dtype == torch.bfloat16,
            _threads(rows, weights),
            largest.data_ptr(),
        )
        return sums

    def finish(self, sums: Tensor, weights: IntegerWeights, largest: Tensor, dtype: torch.dtype) -> Tensor:
        """Makes [rows, outputs] of all ranks' sums: to the bit what `linear` makes of the whole layer.

        dtype: float32 or bfloat16.
        """
        out = torch.empty(len(sums), weights.outputs, dtype=dtype)
        self._library.turnout_integer_finish(
            sums.data_ptr(),
            weights.scale.data_ptr(),
            address(weights.bias),
            largest.data_ptr(),
            out.data_ptr(),
            *out.shape,
            self.levels(weights.precision),
            dtype == torch.bfloat16,
            kernel_threads(),
        )
        return out

    def rows(self, weights: IntegerWeights, tokens: Tensor) -> Tensor:
        """Returns rows of a weight of 8 bits with one group: float32 [tokens, inputs].

        tokens: int64 [tokens], all below `outputs`.
        """
        words = weights.numbers[tokens // self.panel, :, tokens % self.panel]
        codes = words.view(torch.int8)[:, : weights.inputs]
        return codes.float().mul_(weights.scale.flatten()[tokens, None])

    def _in_panels(self, codes: Tensor, precision: Precision, depth: int) -> Tensor:
        """Puts rows of codes in panels of words, which are read together: [panels, words, panel].

        codes: bytes, [outputs, as many as a row has]; missing ones up to `depth` become zeros.
        """
        words = depth // CODES[precision]
        outputs, length = codes.shape
        room = self.memory.room(-(-outputs // self.panel), words, self.panel, dtype=torch.int32)
        if outputs % self.panel:
            room[-1].zero_()
        sizes = outputs, length, words
        self._library.turnout_integer_pack(codes.data_ptr(), room.data_ptr(), *sizes, kernel_threads())
        return room

    def _by_panel(self, numbers: Tensor, more: int) -> Tensor:
        """Turns [outputs, groups] into [panels, groups, panel], with zeros for `more` outputs."""
        padded = pad(numbers, (0, 0, 0, more))
        return padded.reshape(-1, self.panel, numbers.shape[1]).transpose(1, 2).contiguous()

    def _shift(self, codes: Tensor, more: int) -> Tensor:
        """Sums `codes`, int8 [outputs, inputs], piece by piece, with zeros for `more` outputs."""
        outputs, inputs = codes.shape
        sums = torch.empty(-(-inputs // PIECE_OF_BYTES), outputs, dtype=torch.int32)
        sizes = outputs, inputs, PIECE_OF_BYTES
        self._library.turnout_integer_sums(codes.data_ptr(), sums.data_ptr(), *sizes, kernel_threads())
        return self._by_panel(sums.mul_(-self._zero).t(), more)


LEAST = 1e-30
"""What a row of zeros is divided by, as the source has it."""


def magnitudes(rows: Tensor) -> Tensor:
    """Returns the largest magnitude of each of a rank's rows, as the source has it: float32 [rows].

    What is not a number counts as infinite, so that it makes a row of no numbers on all ranks, not on one.
    """
    return rows.abs().amax(1).float().nan_to_num(nan=torch.inf, posinf=torch.inf).clamp(min=LEAST)


def adds_integers(weights: IntegerWeights, ranks: int) -> bool:
    """Says whether ranks that share a layer's inputs add up its integers, as ``native/linears.h`` has it.

    Then what they put out is, to the bit, what one of them would compute alone.
    """
    return weights.precision is Precision.W8A8 and weights.inputs * ranks <= PIECE_OF_BYTES


def _in_rows(x: Tensor, weights: IntegerWeights) -> Tensor:
    if x.dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"linear layers of few bits take float32 and bfloat16, not {x.dtype}")
    if x.shape[1] != weights.inputs:
        raise ValueError(f"{weights.inputs} inputs are expected, not {x.shape[1]}")
    return x if x.stride(1) == 1 else x.contiguous()


def _threads(rows: int, weights: IntegerWeights) -> int:
    return kernel_threads() if rows * weights.inputs * weights.outputs > WORTHWHILE else 1


def together(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """Concatenates tensors by outputs. Layers of one kind all have the tensor, or none does: then None."""
    there = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(there) if there else None


def joint_bias(biases: Sequence[Tensor | None], outputs: Sequence[int]) -> Tensor | None:
    """Concatenates biases, with zeros where one is missing; None where all are. outputs: of each layer."""
    some = next((bias for bias in biases if bias is not None), None)
    if some is None:
        return None
    pairs = zip(biases, outputs, strict=True)
    return torch.cat([some.new_zeros(size) if bias is None else bias.detach() for bias, size in pairs])


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _nibbles(codes: Tensor) -> Tensor:
    """Packs uint8 [outputs, inputs] in bytes, [outputs, 4 · words]; low halves: first four inputs."""
    codes = pad(codes, (0, -codes.shape[1] % CODES[Precision.W4A16]))
    halves = codes.view(len(codes), -1, 2, 4)
    return (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1)
