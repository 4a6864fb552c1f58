"""What keys and values may be stored as. Integers only: torch follows in `storage.py`."""

from __future__ import annotations

from typing import Literal

from turnout.core.types.model_spec import ModelSpec

__all__ = ["KVDtype", "approximation", "bytes_per_token"]

KVDtype = Literal["auto", "bfloat16", "int8", "fp8"]
"""``auto`` is the dtype the model computes in; ``fp8`` is float8_e4m3fn."""

SCALE_BYTES = {"int8": 2, "fp8": 2}
"""A bfloat16 for each token and KV head, of keys and of values."""


def approximation(dtype: KVDtype) -> str:
    """As `KVBackend` has it."""
    return "" if dtype == "auto" else dtype


def bytes_per_token(dtype: KVDtype, spec: ModelSpec, itemsize: int) -> int:
    """Of keys and values of a token position over all layers, scales included.

    `itemsize`: bytes of a number in the dtype the model computes in.
    """
    number = {"auto": itemsize, "bfloat16": 2, "int8": 1, "fp8": 1}[dtype]
    head = spec.head_dim * number + SCALE_BYTES.get(dtype, 0)
    return 2 * spec.layers * spec.kv_heads * head
