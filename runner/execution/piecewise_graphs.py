"""Steps that differ too much for one graph: all but attention is captured, in the pieces between its calls.

What a model computes beside attention depends on the number of tokens alone, so that one padded size does for
prompts, chunks of them and decoding, mixed in any way::

    captured   [ embedding, norm, q k v ]  [ output, norm, MLP, norm, q k v ]  …  [ output, norm, MLP, norm ]
    launched                           attention                       attention
                               of the tokens that there are

Pieces hand over in memory that all sizes share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.core.interfaces.attention import Attend, RotatingAttend
from turnout.kernels.ragged import padded
from turnout.runner.execution.capture import Capture, Forward, Pieces
from turnout.runner.execution.step_inputs import fill

__all__ = ["MOST_TOKENS", "StepPieces", "padded_tokens"]

MOST_TOKENS = 512
"""In a step that is captured; in larger ones the device takes longer than the host to ask for them."""


def padded_tokens(count: int) -> int:
    """Multiples of 16, from 128 on of 32, from 256 on of 64."""
    return padded(count, 16)


class StepPieces:
    """A forward by its number of tokens."""

    def __init__(self, forward: Forward, device: torch.device, capture: Capture) -> None:
        self._forward = forward
        self._device = device
        self._capture = capture
        self._edges = _Edges()
        self._inputs: dict[int, Tensor] = {}
        """By size: token ids and positions, int64 [2, tokens]."""
        self._cuts: dict[int, _Cut] = {}

    def run(self, attend: Attend, inputs: npt.NDArray[np.int64], chosen: Sequence[Tensor] = ()) -> Tensor:
        """Hidden states: [tokens, hidden_size], until the next call.

        attend: bound to the step; inputs: token ids and positions, [2, tokens], at most `MOST_TOKENS`;
        chosen: as a `Plan` has them.
        """
        count = inputs.shape[1]
        size = padded_tokens(count)
        known, rotating = size in self._inputs, isinstance(attend, RotatingAttend)
        if not known:
            self._inputs[size] = torch.zeros((2, size), dtype=torch.int64, device=self._device)
        memory = self._inputs[size]
        fill(memory, inputs, chosen)
        if not known:  # what compiles, compiles now
            padding = (_RotatingPadding if rotating else _Padding)(self._edges, attend, count)
            return self._forward(memory[0], memory[1], padding)[:count]
        if size not in self._cuts:
            self._cuts[size] = self._cut(memory, rotating)
        return self._cuts[size].replay(attend, count)

    def _cut(self, inputs: Tensor, rotating: bool) -> _Cut:
        stops: list[_Stop] = []

        def work(go_on: Callable[[], None]) -> Tensor:
            cutting = (_RotatingScissors if rotating else _Scissors)(self._edges, stops, go_on)
            return self._forward(inputs[0], inputs[1], cutting)

        return _Cut(self._capture.cut(work), stops)


class _Stop(NamedTuple):
    """A call of attention between two pieces."""

    layer: int
    given: tuple[Tensor, ...]
    """q, k and v, and cos and sin where attention rotates; written by the piece before."""
    out: Tensor
    """Read by the piece after."""

    def attend(self, attend: Attend, count: int) -> None:
        given = [tensor[:count] for tensor in self.given]
        call = attend.rotating if len(given) > 3 and isinstance(attend, RotatingAttend) else attend
        self.out[:count].copy_(call(self.layer, *given))


class _Cut(NamedTuple):
    pieces: Pieces
    stops: list[_Stop]

    def replay(self, attend: Attend, count: int) -> Tensor:
        *before, last = self.pieces.replays
        for piece, stop in zip(before, self.stops, strict=True):
            piece()
            stop.attend(attend, count)
        last()
        return self.pieces.out[:count]


class _Edges:
    """The memory in which pieces hand over: the same for all layers and sizes, as one is done with it before
    the next begins."""

    def __init__(self) -> None:
        self._memory: dict[tuple[object, ...], Tensor] = {}

    def make(self, role: str, tensor: Tensor) -> Tensor:
        """For a `tensor` [tokens, heads, head_dim] in that role: the same, if there is some already."""
        key = (role, tensor.shape[1:], tensor.dtype)
        if key not in self._memory:
            self._memory[key] = tensor.new_zeros(MOST_TOKENS, *tensor.shape[1:])
        return self.of(role, tensor)

    def of(self, role: str, tensor: Tensor) -> Tensor:
        return self._memory[role, tensor.shape[1:], tensor.dtype][: len(tensor)]

    def keep(self, role: str, tensor: Tensor) -> Tensor:
        return self.of(role, tensor).copy_(tensor)


class _Scissors:
    """Attention that ends a piece where it is called. Implements Attend."""

    def __init__(self, edges: _Edges, stops: list[_Stop], go_on: Callable[[], None]) -> None:
        self._edges, self._stops, self._go_on = edges, stops, go_on

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._stop(layer, q, k, v)

    def _stop(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *rotation: Tensor) -> Tensor:
        given = [self._edges.keep(role, tensor) for role, tensor in zip("qkv", (q, k, v), strict=True)]
        self._go_on()
        out = self._edges.of("out", q)
        # Rotations are the first piece's, and stay where they are until the last one.
        self._stops.append(_Stop(layer, (*given, *rotation), out))
        return out


class _RotatingScissors(_Scissors, RotatingAttend):
    def rotating(self, layer: int, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return self._stop(layer, q, k, v, cos, sin)


class _Padding:
    """Attends with the first `count` tokens, and makes the memory that pieces will hand over in.

    Memory that is made while they are recorded would be made anew with each replay. Implements Attend.
    """

    def __init__(self, edges: _Edges, attend: Attend, count: int) -> None:
        self._edges, self._attend, self._count = edges, attend, count

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._padded(self._attend, layer, q, k, v)

    def _padded(self, call: Callable[..., Tensor], layer: int, *given: Tensor) -> Tensor:
        for role, tensor in zip("qkv", given, strict=False):
            self._edges.make(role, tensor)
        out = self._edges.make("out", given[0])
        out[: self._count] = call(layer, *(tensor[: self._count] for tensor in given))
        return out


class _RotatingPadding(_Padding, RotatingAttend):
    def rotating(self, layer: int, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        assert isinstance(self._attend, RotatingAttend)
        return self._padded(self._attend.rotating, layer, q, k, v, cos, sin)
