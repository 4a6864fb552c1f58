"""Rotary position embedding, and its scalings to longer contexts.

Frequencies are computed on the CPU in float32 by the same arithmetic as transformers, so that tokens
come out equal. Whatever the scaling, the rotation of a token depends on its own position alone: it is
the same in any batch, in any chunking of the prompt, and after preemption.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from turnout.core.errors import ModelError
from turnout.core.types.model_spec import RopeSpec

__all__ = ["Rotary", "RotaryByLayer", "Rotation", "make_rotary", "no_rotary"]


FEWEST, MOST = 1 << 10, 1 << 15
"""Positions of a table of rotations: of the most, and heads of 128 numbers, it takes 32 MB in float32."""


class Rotation(NamedTuple):
    """A step's rotation, computed once for all layers. cos, sin: [tokens, 1, head_dim]."""

    cos: Tensor
    sin: Tensor

    def apply(self, x: Tensor) -> Tensor:
        """Returns x, [tokens, heads, head_dim], rotated."""
        half = x.shape[-1] // 2
        return x * self.cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * self.sin


class Rotary(nn.Module):
    """Rotary embedding whose frequencies are the same for all positions."""

    inverse_frequencies: Tensor
    amplitudes: Tensor | None
    """Of each number of a head, where they differ."""

    def __init__(self, inverse_frequencies: Tensor, amplitude: float = 1.0) -> None:
        """inverse_frequencies: float32 [head_dim / 2]; amplitude: a factor of cosine and sine."""
        super().__init__()
        self.register_buffer("inverse_frequencies", inverse_frequencies, persistent=False)
        self.amplitude = amplitude
        self.register_buffer("amplitudes", None, persistent=False)
        self._tables: dict[torch.dtype, Rotation] = {}
        """On a CPU: of all positions up to the farthest so far, or farther."""

    def forward(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        """Returns the rotation of tokens at `positions`, int64 [tokens]."""
        if positions.device.type != "cpu" or not len(positions):
            return self._rotation(positions, dtype)
        # Of the step of a small model, which takes a millisecond, computing these took a twentieth.
        farthest = int(positions.max())
        if farthest >= MOST:
            return self._rotation(positions, dtype)
        table = self._tables.get(dtype)
        if table is None or farthest >= len(table.cos):
            count = max(FEWEST, 1 << farthest.bit_length())
            table = self._tables[dtype] = self._rotation(torch.arange(count), dtype)
        return Rotation(table.cos.index_select(0, positions), table.sin.index_select(0, positions))

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        angles = positions[:, None].float() * self.frequencies(positions)
        angles = torch.cat((angles, angles), dim=-1)[:, None, :]
        scale = self.amplitude if self.amplitudes is None else self.amplitudes
        return Rotation((angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype))

    def pad(self, count: int) -> None:
        """Adds so many frequencies that turn nothing, and scale nothing."""
        turned = len(self.inverse_frequencies)
        self.inverse_frequencies = functional.pad(self.inverse_frequencies, (0, count))
        amplitudes = [self.amplitude] * turned + [1.0] * count
        self.amplitudes = torch.tensor(2 * amplitudes, dtype=torch.float32, device="cpu")

    def frequencies(self, positions: Tensor) -> Tensor:
        """Returns inverse frequencies that broadcast over [tokens, head_dim / 2]."""
        return self.inverse_frequencies


class DynamicRotary(Rotary):
    """NTK scaling that grows with the sequence ("dynamic").

    A token at position p is rotated as the last token of a sequence of p + 1 tokens, and its key stays
    as it was rotated. transformers takes the length of each forward call instead. The two agree for
    every prompt within the original length, however much is generated after it, and for any sequence
    fed token by token. They differ for a prompt longer than the original length, which transformers
    rotates by its whole length: that could not be kept up under chunked prefill and recomputation.
    """

    exponents: Tensor

    def __init__(self, rope: RopeSpec, head_dim: int) -> None:
        super().__init__(_unscaled(rope.theta, head_dim))
        self.register_buffer("exponents", _exponents(head_dim), persistent=False)
        self.theta = rope.theta
        self.factor = rope.parameters["factor"]
        self.original: int = rope.parameters["original_max_position_embeddings"]
        self.power = head_dim / (head_dim - 2)

    def frequencies(self, positions: Tensor) -> Tensor:
        lengths = (positions[:, None] + 1).clamp(min=self.original).float()
        stretch = self.factor * lengths / self.original - (self.factor - 1)
        # Powers are taken in float64: of many positions at once, the last bit of float32 depends on the CPU,
        # and an angle is off by that bit times its position.
        base = self.theta * (stretch.double() ** self.power).float()
        scaled = 1.0 / (base.double() ** self.exponents.double()).float()
        # Rounding may keep `stretch` from being exactly 1 within the original length.
        return torch.where(positions[:, None] < self.original, self.inverse_frequencies, scaled)


class RotaryByLayer(nn.Module):
    """The rotary embedding of each layer; those that layers share are computed once a step."""

    def __init__(self, rotaries: Sequence[Rotary], of_layer: Sequence[int]) -> None:
        """of_layer: for each layer, which of `rotaries` it has."""
        super().__init__()
        self.rotaries = nn.ModuleList(rotaries)
        self.of_layer = tuple(of_layer)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> list[Rotation]:
        """Returns the rotations of tokens at `positions`, int64 [tokens], in the order of `rotaries`."""
        return [rotary(positions, dtype) for rotary in self.rotaries]


class NoRotary(Rotary):
    """Turns by no angle, which gives back the same bits. Heads may be of any width, odd ones too."""

    def __init__(self, head_dim: int) -> None:
        super().__init__(torch.zeros(head_dim // 2, dtype=torch.float32, device="cpu"))
        self.head_dim = head_dim

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        cos = torch.ones(len(positions), 1, self.head_dim, dtype=dtype, device=positions.device)
        return Rotation(cos, torch.zeros_like(cos))


def no_rotary(head_dim: int) -> Rotary:
    """Builds the module of layers without positions."""
    return NoRotary(head_dim)


class LongRotary(Rotary):
    """LongRoPE: frequencies of their own for positions beyond the original length.

    A token is rotated by its own position alone, as `DynamicRotary` explains; transformers rotates a whole
    sequence by its length. The two agree for sequences within the original length.
    """

    long_frequencies: Tensor

    def __init__(self, rope: RopeSpec, head_dim: int) -> None:
        frequencies = []
        for key in ("short_factor", "long_factor"):
            factors = torch.tensor(rope.parameters[key], dtype=torch.float32, device="cpu")
            if len(factors) != head_dim // 2:
                raise ModelError(
                    f"config.json: {key} should have {head_dim // 2} numbers, one for each frequency, "
                    f"not {len(factors)}"
                )
            frequencies.append(1.0 / (factors * rope.theta ** _exponents(head_dim)))
        super().__init__(frequencies[0], _long_amplitude(rope))
        self.register_buffer("long_frequencies", frequencies[1], persistent=False)
        self.original: int = rope.parameters["original_max_position_embeddings"]

    def frequencies(self, positions: Tensor) -> Tensor:
        within = positions[:, None] < self.original
        return torch.where(within, self.inverse_frequencies, self.long_frequencies)

    def pad(self, count: int) -> None:
        super().pad(count)
        self.long_frequencies = functional.pad(self.long_frequencies, (0, count))


def make_rotary(rope: RopeSpec, head_dim: int) -> Rotary:
    """Builds the module for a checkpoint's rotary embedding.

    With a ``partial_rotary_factor`` only the first numbers of each half of a head turn.
    """
    turned = rope.turned_width(head_dim)
    try:
        rotary = _whole_rotary(rope, turned)
    except (ArithmeticError, ValueError) as error:
        raise ModelError(
            f"config.json: no rotary embeddings of the kind {rope.kind!r} follow from rope_theta = "
            f"{rope.theta} and the scaling's numbers, for heads of {head_dim} ({error}); correct them"
        ) from error
    if turned < head_dim:
        rotary.pad((head_dim - turned) // 2)
    return rotary


def _whole_rotary(rope: RopeSpec, head_dim: int) -> Rotary:
    if rope.kind == "longrope":
        return LongRotary(rope, head_dim)
    if rope.kind == "dynamic":
        return DynamicRotary(rope, head_dim)
    if rope.kind == "linear":
        return Rotary(_unscaled(rope.theta, head_dim) / rope.parameters["factor"])
    if rope.kind == "llama3":
        return Rotary(_llama3(rope, head_dim))
    if rope.kind == "yarn":
        return Rotary(_yarn(rope, head_dim), _yarn_amplitude(rope))
    return Rotary(_unscaled(rope.theta, head_dim))


def _exponents(head_dim: int) -> Tensor:
    # The device is spelt out here and below: these must be real numbers in a module built on "meta".
    return torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim


def _unscaled(theta: float, head_dim: int) -> Tensor:
    inverse: Tensor = 1.0 / (theta ** _exponents(head_dim))
    return inverse


def _llama3(rope: RopeSpec, head_dim: int) -> Tensor:
    """Slows long wavelengths down, keeps short ones, and blends between them (Llama 3.1)."""
    low, high = rope.parameters["low_freq_factor"], rope.parameters["high_freq_factor"]
    factor, original = rope.parameters["factor"], rope.parameters["original_max_position_embeddings"]
    inverse = _unscaled(rope.theta, head_dim)
    wavelength = 2 * math.pi / inverse
    slowed = torch.where(wavelength > original / low, inverse / factor, inverse)
    blend = (original / wavelength - low) / (high - low)
    blended = (1 - blend) * slowed / factor + blend * slowed
    between = (wavelength >= original / high) & (wavelength <= original / low)
    return torch.where(between, blended, slowed)


def _yarn(rope: RopeSpec, head_dim: int) -> Tensor:
    """Interpolates slow dimensions, keeps fast ones, ramps between them (https://arxiv.org/abs/2309.00071)."""
    wavelengths = rope.theta ** _exponents(head_dim)
    low, high = _yarn_range(rope, head_dim)
    ramp = (torch.arange(head_dim // 2, dtype=torch.float32, device="cpu") - low) / (high - low)
    keep = 1 - ramp.clamp(0, 1)
    interpolated: Tensor = 1.0 / (rope.parameters["factor"] * wavelengths)
    return interpolated * (1 - keep) + 1.0 / wavelengths * keep


def _yarn_range(rope: RopeSpec, head_dim: int) -> tuple[float, float]:
    """Returns the dimensions between which yarn ramps from keeping to interpolating."""

    def dimension(rotations: float) -> float:
        """Returns the dimension that turns that often over the original length."""
        original = rope.parameters["original_max_position_embeddings"]
        return head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low = dimension(rope.parameters.get("beta_fast") or 32)
    high = dimension(rope.parameters.get("beta_slow") or 1)
    if rope.parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    return (low, high + 0.001) if low == high else (low, high)


def _long_amplitude(rope: RopeSpec) -> float:
    given, factor = rope.parameters.get("attention_factor"), rope.parameters["factor"]
    if given is not None:
        return float(given)
    original = rope.parameters["original_max_position_embeddings"]
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def _yarn_amplitude(rope: RopeSpec) -> float:
    """Returns the factor of cosine and sine: the checkpoint's, else yarn's own."""

    def scale(weight: float) -> float:
        factor = rope.parameters["factor"]
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    given = rope.parameters.get("attention_factor")
    if given is not None:
        return float(given)
    above, below = rope.parameters.get("mscale"), rope.parameters.get("mscale_all_dim")
    return scale(above) / scale(below) if above and below else scale(1.0)
