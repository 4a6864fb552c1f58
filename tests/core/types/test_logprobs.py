"""Packed log-probabilities are those that were packed, in a tenth of the memory."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnout.core.types.logprobs import PackedLogprobs, TokenLogprobs

tokens, logprobs = st.integers(0, 2**31 - 1), st.floats(allow_nan=False)
entries = st.builds(TokenLogprobs, tokens, logprobs, st.lists(st.tuples(tokens, logprobs), max_size=4))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(entries, max_size=5), max_size=4))
def test_all_come_back(parts: list[list[TokenLogprobs]]) -> None:
    packed, everything = PackedLogprobs(), [entry for part in parts for entry in part]
    for part in parts:
        packed.extend(part)
    assert list(packed) == everything
    assert [packed[index] for index in range(-len(everything), len(everything))] == everything * 2
    assert packed == everything == packed and packed == PackedLogprobs(everything)
    assert packed != [*everything, TokenLogprobs(0, 0.0, [])] and packed != 0
    assert packed[1:4] == everything[1:4] and packed[::-2] == everything[::-2]


def test_they_take_little_memory() -> None:
    packed = PackedLogprobs([TokenLogprobs(7, -1.0, [(k, -1.0) for k in range(20)])] * 100)
    assert packed.nbytes == 100 * (20 * 12 + 20)


def test_what_is_no_token_id_adds_nothing() -> None:
    """A faulty plugin's: only its own request ends."""
    packed = PackedLogprobs([TokenLogprobs(7, -1.0, [(7, -1.0)])])
    for token, top in ((2**40, 7), (7, 2**40)):
        with pytest.raises(OverflowError):
            packed.extend([TokenLogprobs(token, -1.0, [(top, -1.0)])])
    assert list(packed) == [TokenLogprobs(7, -1.0, [(7, -1.0)])]
