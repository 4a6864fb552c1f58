"""On a CPU, rotations are read from a table: those that would be computed for each step, to the bit."""

from __future__ import annotations

import pytest
import torch

from turnout.core.types.model_spec import RopeSpec
from turnout.models.decoder.rope import MOST, make_rotary

SPECS = {
    "default": RopeSpec(),
    "linear": RopeSpec(kind="linear", parameters={"factor": 4.0}),
    "partial": RopeSpec(parameters={"partial_rotary_factor": 0.5}),
    "dynamic": RopeSpec(kind="dynamic", parameters={"factor": 2.0, "original_max_position_embeddings": 512}),
    "yarn": RopeSpec(kind="yarn", parameters={"factor": 4.0, "original_max_position_embeddings": 512}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SPECS)
def test_a_rotation_is_what_is_computed_for_it_alone(name: str, dtype: torch.dtype) -> None:
    rotary = make_rotary(SPECS[name], 64)
    steps = [[0], [7, 3, 1023], [1024], [5, 5000], list(range(300, 333)), [MOST - 1], [2, MOST], [9]]
    for positions in map(torch.tensor, steps):
        found = rotary(positions, dtype)
        for place, position in enumerate(positions):
            alone = rotary._rotation(position[None], dtype)
            # PyTorch's power of a few numbers differs in the last bit from that of many.
            off = 1e-3 if name == "dynamic" and position < MOST else 0.0
            assert torch.allclose(found.cos[place], alone.cos[0], rtol=0.0, atol=off), position
            assert torch.allclose(found.sin[place], alone.sin[0], rtol=0.0, atol=off), position


def test_tables_end_somewhere() -> None:
    rotary = make_rotary(RopeSpec(), 64)
    rotary(torch.tensor([100 * MOST]), torch.float32)
    assert not rotary._tables
    rotary(torch.tensor([MOST - 1]), torch.float32)
    assert len(rotary._tables[torch.float32].cos) == MOST


def test_no_tokens() -> None:
    assert make_rotary(RopeSpec(), 64)(torch.empty(0, dtype=torch.int64), torch.float32).cos.shape == (
        0,
        1,
        64,
    )
