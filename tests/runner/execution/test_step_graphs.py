"""Captured steps: what is run, recorded and replayed, and on which memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from replaying import Recorder
from torch import Tensor

from turnout.core.interfaces.attention import Attend
from turnout.core.types.plan import StepShape
from turnout.runner.execution import graphs
from turnout.runner.execution.capture import choose_capture
from turnout.runner.execution.graphs import StepGraphs

CPU = torch.device("cpu")
FOUR = StepShape(4, "decode")


def forward(tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
    return torch.stack([tokens, positions, attend(0, tokens, tokens, tokens)], dim=1)


def double(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return 2 * q


def run(step_graphs: StepGraphs, shape: StepShape, *tokens: int) -> list[list[int]]:
    ids = np.array(tokens)
    return step_graphs.run(shape, double, np.stack([ids, ids + 100])).tolist()


def test_the_second_step_of_a_shape_is_captured_and_later_ones_are_replayed() -> None:
    recorder = Recorder()
    step_graphs = StepGraphs(forward, CPU, recorder)
    counts = []
    for first in (1, 5, 9):
        tokens = (first, first + 1, first + 2)
        assert run(step_graphs, FOUR, *tokens) == [[token, token + 100, 2 * token] for token in tokens]
        counts.append((recorder.captured, recorder.replayed))
    assert counts == [(0, 0), (1, 1), (1, 2)]


def test_what_is_left_of_a_larger_step_is_padding_in_a_smaller_one() -> None:
    recorder = Recorder()
    seen: list[list[int]] = []

    def watching(tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        seen.append(tokens.tolist() + positions.tolist())
        return tokens[:, None]

    step_graphs = StepGraphs(watching, CPU, recorder)
    run(step_graphs, FOUR, 7, 8, 9, 10)
    assert run(step_graphs, FOUR, 3) == [[3]]
    assert seen[-1] == [3, 0, 0, 0, 103, 0, 0, 0]


def test_shapes_have_graphs_of_their_own_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 2)
    recorder = Recorder()
    step_graphs = StepGraphs(forward, CPU, recorder)
    for kind in ("a", "b", "a", "b", "a", "c", "a", "b"):
        run(step_graphs, StepShape(4, kind), 1)
    assert (recorder.captured, recorder.replayed) == (2, 4)  # b was forgotten for c


def test_nothing_is_captured_on_a_cpu() -> None:
    assert choose_capture(CPU, eager=False) is None
