"""Lists of token ids, checked in slices, between which other threads run.

pydantic would check a list in one call, for 30 ms where it has two million ids.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, WrapValidator

__all__ = ["MAX_TOKEN_ID", "TokenId", "TokenIds", "Truncation", "are_token_ids"]

MAX_TOKEN_ID = 2**31 - 1
SLICE = 4096

TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
"""The engine checks whether the model has such a token."""


def are_token_ids(values: list[Any]) -> bool:
    """Whether all values are integers from 0 to `MAX_TOKEN_ID`."""
    for start in range(0, len(values), SLICE):
        part = values[start : start + SLICE]
        if {*map(type, part)} != {int} or min(part) < 0 or max(part) > MAX_TOKEN_ID:
            return False
    return True


def _checked(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """pydantic is asked only where there is something to report."""
    return value if isinstance(value, list) and are_token_ids(value) else validate(value)


TokenIds = Annotated[list[TokenId], Field(fail_fast=True), WrapValidator(_checked)]
"""Only the first fault is reported: errors about millions of items would fill the memory."""


def _keeps_some(value: int) -> int:
    if value == 0:
        raise ValueError("-1, or a number of tokens above 0, is expected")
    return value


Truncation = Annotated[int, Field(ge=-1), AfterValidator(_keeps_some)]
"""How many of a prompt's last tokens are kept."""
