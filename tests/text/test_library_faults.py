"""What a library makes of a client's text is the client's error, even where the library panics."""

from __future__ import annotations

import pytest

from turnout.core.errors import RequestError
from turnout.text.library_faults import refused_by_library
from turnout.text.tokenizer import Tokenizer


class PanicException(BaseException):
    """As PyO3 raises it, which exports no name for it."""


@pytest.mark.parametrize("error", [PanicException("index out of bounds"), ValueError("index out of bounds")])
def test_a_panic_is_refused_like_an_error(error: BaseException) -> None:
    expected = pytest.raises(RequestError, match="this text cannot be read: index out of bounds")
    with expected as refusal, refused_by_library("this text cannot be read", "prompt"):
        raise error
    assert refusal.value.param == "prompt"


def test_an_interrupt_is_none_of_the_clients() -> None:
    with pytest.raises(KeyboardInterrupt), refused_by_library("this text cannot be read", "prompt"):
        raise KeyboardInterrupt


def test_numbers_that_no_token_can_have(bytewise: Tokenizer) -> None:
    """An OverflowError became 500."""
    with pytest.raises(RequestError, match="these tokens cannot be decoded"):
        bytewise.decode([2**32])
