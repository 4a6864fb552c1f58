"""Lists of token ids are checked in slices, with pydantic's verdict."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from turnout.server.protocol.token_ids import MAX_TOKEN_ID, SLICE, TokenIds, are_token_ids


class Body(BaseModel):
    """A body with a list of tokens."""

    model_config = ConfigDict(strict=True)
    tokens: TokenIds


@pytest.mark.parametrize("length", [0, 1, SLICE, 3 * SLICE + 1])
def test_token_ids_are_taken_as_they_are(length: int) -> None:
    tokens = [MAX_TOKEN_ID] * length
    assert are_token_ids(tokens)
    assert Body(tokens=tokens).tokens is tokens


@pytest.mark.parametrize("wrong", [-1, MAX_TOKEN_ID + 1, 1.0, True, "1", None, [1]])
def test_the_first_fault_is_reported(wrong: Any) -> None:
    tokens = [1] * (2 * SLICE) + [wrong, wrong]
    assert not are_token_ids(tokens)
    with pytest.raises(ValidationError) as raised:
        Body(tokens=tokens)
    (problem,) = raised.value.errors()
    assert problem["loc"] == ("tokens", 2 * SLICE)
