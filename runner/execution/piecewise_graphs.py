"""Piecewise graphs, for steps that differ too much for one graph: all but attention is captured.

What a model computes beside attention depends on the number of tokens alone. So the pieces between
attention's calls, captured for one padded size, serve prompts, chunks of them and decoding, mixed in any
way::

    captured   [ embedding, norm, q k v ]  [ output, norm, MLP, norm, q k v ]  …  [ output, norm, MLP, norm ]
    launched                           attention                       attention
                               of the tokens that there are

A piece leaves its results for the next one in buffers that all sizes share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.core.interfaces.attention import Attend, AttentionCapabilities, rotates
from turnout.kernels.ragged import padded
from turnout.runner.execution.capture import Capture, CapturedPieces, Forward
from turnout.runner.execution.step_inputs import fill

__all__ = ["MAX_TOKENS", "PiecewiseGraphs", "padded_tokens"]

MAX_TOKENS = 512
"""Tokens of a step that is captured, at most. The device takes longer to compute a larger step than the host
takes to launch it, so that capturing would save nothing."""


def padded_tokens(count: int) -> int:
    """Rounds up to a multiple of 16, from 128 on of 32, from 256 on of 64."""
    return padded(count, 16)


class PiecewiseGraphs:
    """A model's forward, captured in pieces once for each padded number of tokens."""

    def __init__(self, forward: Forward, device: torch.device, capture: Capture) -> None:
        self._forward = forward
        self._device = device
        self._capture = capture
        self._buffers = _Buffers()
        self._inputs: dict[int, Tensor] = {}
        """By size: token ids and positions, int64 [2, tokens]."""
        self._steps: dict[int, _CapturedStep] = {}

    def run(self, attend: Attend, inputs: npt.NDArray[np.int64], chosen: Sequence[Tensor] = ()) -> Tensor:
        """Returns hidden states, [tokens, hidden_size], which are valid until the next call.

        attend: bound to the step; inputs: token ids and positions, [2, tokens], at most `MAX_TOKENS`;
        chosen: as a `Plan` has them.
        """
        count = inputs.shape[1]
        size = padded_tokens(count)
        known = size in self._inputs
        if not known:
            self._inputs[size] = torch.zeros((2, size), dtype=torch.int64, device=self._device)
        memory = self._inputs[size]
        fill(memory, inputs, chosen)
        calls = _Calls.of(attend)
        if not known:  # what compiles, compiles now
            return self._forward(memory[0], memory[1], _PaddedAttention(self._buffers, calls, count))[:count]
        if size not in self._steps:
            self._steps[size] = self._captured(memory, calls.capabilities)
        return self._steps[size].replay(calls, count)

    def _captured(self, inputs: Tensor, capabilities: AttentionCapabilities) -> _CapturedStep:
        gaps: list[_Gap] = []

        def work(next_piece: Callable[[], None]) -> Tensor:
            boundary = _PieceBoundary(self._buffers, gaps, next_piece, capabilities)
            return self._forward(inputs[0], inputs[1], boundary)

        return _CapturedStep(self._capture.capture_pieces(work), gaps)


class _Calls(NamedTuple):
    """The calls of what attends in a step, looked up once for all layers."""

    plain: Callable[..., Tensor]
    rotating: Callable[..., Tensor]
    """The plain call, where attention does not rotate."""
    capabilities: AttentionCapabilities
    """Those of the attention that stands in for it while a step is captured."""

    @classmethod
    def of(cls, attend: Attend) -> _Calls:
        if rotates(attend):
            return cls(attend, attend.rotating, _ROTATING)
        return cls(attend, attend, _PLAIN)


_PLAIN, _ROTATING = AttentionCapabilities(), AttentionCapabilities(rotates=True)


class _Gap(NamedTuple):
    """A call of attention, between two pieces."""

    layer: int
    rotates: bool
    given: tuple[Tensor | None, ...]
    """q, k and v, and cos and sin where attention rotates; written by the piece before."""
    sinks: tuple[Tensor, ...]
    """The layer's weights, where it has any."""
    out: Tensor
    """Read by the piece after."""

    def attend(self, calls: _Calls, count: int) -> None:
        given = [None if tensor is None else tensor[:count] for tensor in self.given]
        call = calls.rotating if self.rotates else calls.plain
        self.out[:count].copy_(call(self.layer, *given, *self.sinks))


class _CapturedStep(NamedTuple):
    """The pieces of a step of one size, and the attention calls between them."""

    captured: CapturedPieces
    gaps: list[_Gap]

    def replay(self, calls: _Calls, count: int) -> Tensor:
        *before, last = self.captured.replays
        for piece, gap in zip(before, self.gaps, strict=True):
            piece()
            gap.attend(calls, count)
        last()
        return self.captured.out[:count]


class _Buffers:
    """The memory in which a piece leaves what attention and the next piece read.

    It is the same for all layers and sizes, since one layer is done with it before the next one begins.
    """

    def __init__(self) -> None:
        self._memory: dict[tuple[object, ...], Tensor] = {}
        self.widths: dict[int, int] = {}
        """By layer, the width of a head that comes out of attention."""

    def make(self, role: str, like: Tensor) -> Tensor:
        """Returns the buffer for tensors [tokens, heads, width] such as `like` in that role."""
        key = (role, like.shape[1:], like.dtype)
        if key not in self._memory:
            self._memory[key] = like.new_zeros(MAX_TOKENS, *like.shape[1:])
        return self.of(role, like)

    def of(self, role: str, like: Tensor) -> Tensor:
        return self._memory[role, like.shape[1:], like.dtype][: len(like)]

    def keep(self, role: str, tensor: Tensor) -> Tensor:
        return self.of(role, tensor).copy_(tensor)


class _PieceBoundary:
    """Stands in for attention while a step is captured: each call ends a piece. Implements RotatingAttend."""

    def __init__(
        self,
        buffers: _Buffers,
        gaps: list[_Gap],
        next_piece: Callable[[], None],
        capabilities: AttentionCapabilities,
    ) -> None:
        self._buffers, self._gaps, self._next_piece = buffers, gaps, next_piece
        self.capabilities = capabilities

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        return self._end(layer, (q, k, v), (), sinks)

    def rotating(
        self,
        layer: int,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        sinks: Tensor | None = None,
    ) -> Tensor:
        return self._end(layer, (q, k, v), (cos, sin), sinks)

    def _end(self, layer: int, parts: _Parts, rotation: tuple[Tensor, ...], sinks: Tensor | None) -> Tensor:
        given = [
            None if tensor is None else self._buffers.keep(role, tensor)
            for role, tensor in zip("qkv", parts, strict=True)
        ]
        self._next_piece()
        q = parts[0]
        out = self._buffers.of("out", q[..., :1].expand(*q.shape[:2], self._buffers.widths[layer]))
        # Rotations are the first piece's, and stay where they are until the last one.
        known = () if sinks is None else (sinks,)
        self._gaps.append(_Gap(layer, bool(rotation), (*given, *rotation), known, out))
        return out


_Parts = tuple[Tensor, Tensor | None, Tensor | None]
"""Queries, keys and values of a layer."""


class _PaddedAttention:
    """Attends with the first `count` tokens, and makes the buffers of the pieces. Implements RotatingAttend.

    A buffer that was made while pieces are captured would be made anew with each replay.
    """

    def __init__(self, buffers: _Buffers, calls: _Calls, count: int) -> None:
        self._buffers, self._calls, self._count = buffers, calls, count
        self.capabilities = calls.capabilities

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        return self._padded(self._calls.plain, layer, (q, k, v), (), sinks)

    def rotating(
        self,
        layer: int,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        sinks: Tensor | None = None,
    ) -> Tensor:
        return self._padded(self._calls.rotating, layer, (q, k, v), (cos, sin), sinks)

    def _padded(
        self,
        call: Callable[..., Tensor],
        layer: int,
        parts: _Parts,
        rotation: tuple[Tensor, ...],
        sinks: Tensor | None,
    ) -> Tensor:
        for role, tensor in zip("qkv", parts, strict=True):
            if tensor is not None:
                self._buffers.make(role, tensor)
        given = [None if tensor is None else tensor[: self._count] for tensor in (*parts, *rotation)]
        found = call(layer, *given) if sinks is None else call(layer, *given, sinks)
        self._buffers.widths[layer] = found.shape[-1]
        q = parts[0]
        out = self._buffers.make("out", q[..., :1].expand(*q.shape[:2], found.shape[-1]))
        out[: self._count] = found
        return out
