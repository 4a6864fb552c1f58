"""What attention is bound to a shape with, for steps that are captured and replayed."""

from __future__ import annotations

import pytest
import torch
from ragged_case import Case

from turnout.plugins.kv_backends.paged.device.step_shapes import padded_batch, padded_parts


@pytest.mark.parametrize(
    "spans",
    [[(17, 1), (40, 1), (5, 1)], [(600, 1), (17, 1), (1100, 1)], [(30, 3), (700, 3), (2, 3)]],
    ids=["short", "in parts", "verifying"],
)
def test_what_is_padded_and_bound_to_a_shape_equals_the_textbook(
    spans: list[tuple[int, int]], device: torch.device
) -> None:
    Case(4, 2, 64, 16, spans, shaped=True).check(device)


@pytest.mark.parametrize(
    ("context", "parts"), [(512, 1), (513, 4), (2048, 4), (2049, 16), (8193, 64), (100_000, 64)]
)
def test_few_numbers_of_parts(context: int, parts: int) -> None:
    assert padded_parts(context) == parts


def test_few_batch_sizes_and_little_padding() -> None:
    counts = (1, 2, 3, 5, 9, 33, 65, 129, 256)
    assert [padded_batch(count) for count in counts] == [1, 2, 4, 8, 16, 40, 80, 160, 256]
    sizes = {padded_batch(count) for count in range(1, 257)}
    assert len(sizes) < 24
    assert all(count <= padded_batch(count) <= max(8, 1.8 * count) for count in range(1, 257))
