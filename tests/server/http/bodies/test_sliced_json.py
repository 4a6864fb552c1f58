"""A body decoded in slices has the values that the decoder gives."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnout.server.http.bodies import sliced_json
from turnout.server.http.bodies.sliced_json import decode_in_slices

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9999, 9999) | st.text(max_size=9) | st.sampled_from('\\"[],{}'),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=40,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.text(max_size=3), values, max_size=4),
    st.integers(4, 40),
    st.none() | st.integers(0, 2),
)
def test_the_values_are_those_of_the_decoder(body: dict[str, Any], size: int, indent: int | None) -> None:
    text = json.dumps(body, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliced_json, "SLICE", size)
        assert decode_in_slices(text) == body


@pytest.mark.parametrize("item", [b"12345", b"-1.5e3", b'"a, b"', b"[1, 2]", b'{"a": [1]}', rb'"\\\""'])
def test_no_slice_is_long(monkeypatch: pytest.MonkeyPatch, item: bytes) -> None:
    """Two million token ids held every other client for 85 ms."""
    longest, decode = 0, msgspec.json.decode

    def measured(text: bytes, **options: Any) -> Any:
        nonlocal longest
        if not options:
            longest = max(longest, len(text))
        return decode(text, **options)

    text = b'{"prompt": [' + b", ".join([item] * 50_000) + b"]}"
    expected = decode(text)
    monkeypatch.setattr(msgspec.json, "decode", measured)
    assert decode_in_slices(text) == expected
    assert longest < 2 * sliced_json.SLICE


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": [1,, 2]}',
        b'{"a": [1, 2',
        b'{"a": [NaN]}',
        b'{"a": ["\\ud800"]}',
        b"[1]",
        b"",
        b'{"a": ["\xff"]}',
    ],
)
def test_what_is_malformed_is_refused(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sliced_json, "SLICE", 2)
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode_in_slices(text)
