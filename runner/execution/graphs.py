"""Captured graphs: a step's forward is captured once for each shape, and replayed by one call.

A graph reads and writes the memory that it was captured with. So each shape has its own tensors for token ids
and positions, which are filled before it runs; the attention backend has the same for what it reads.

::

    the first step of a shape     runs as it is, on the shape's tensors: what compiles, compiles now
    the second                    is captured, and replayed
    each one after it             is replayed
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.core.interfaces.attention import Attend
from turnout.core.types.plan import StepShape
from turnout.runner.execution.capture import Capture, Forward
from turnout.runner.execution.step_inputs import fill

__all__ = ["StepGraphs"]

MAX_GRAPHS = 96
"""Graphs kept at a time; the one that was replayed longest ago is dropped first."""


@dataclass
class _ShapeGraph:
    inputs: Tensor
    """Token ids and positions: int64 [2, tokens]."""
    replay: Callable[[], Tensor] | None = None


class StepGraphs:
    """A model's forward, captured once for each shape of a step."""

    def __init__(self, forward: Forward, device: torch.device, capture: Capture) -> None:
        self._forward = forward
        self._device = device
        self._capture = capture
        self._shapes: OrderedDict[StepShape, _ShapeGraph] = OrderedDict()

    def run(
        self, shape: StepShape, attend: Attend, inputs: npt.NDArray[np.int64], chosen: Sequence[Tensor] = ()
    ) -> Tensor:
        """Returns hidden states, [tokens, hidden_size], which are valid until the next call.

        attend: what the backend bound to this shape; inputs: token ids and positions, [2, tokens];
        chosen: as a `Plan` has them.
        """
        known = shape in self._shapes
        step = self._shape(shape)
        fill(step.inputs, inputs, chosen)
        forward = partial(self._forward, step.inputs[0], step.inputs[1], attend)
        if step.replay is None and known:
            step.replay = self._capture.capture(forward)
        hidden = forward() if step.replay is None else step.replay()
        return hidden[: inputs.shape[1]]

    def _shape(self, shape: StepShape) -> _ShapeGraph:
        if shape not in self._shapes:
            if len(self._shapes) == MAX_GRAPHS:
                self._shapes.popitem(last=False)
            inputs = torch.zeros((2, shape.tokens), dtype=torch.int64, device=self._device)
            self._shapes[shape] = _ShapeGraph(inputs)
        self._shapes.move_to_end(shape)
        return self._shapes[shape]
