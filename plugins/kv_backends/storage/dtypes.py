"""The dtypes that keys and values may be stored in, and their sizes. Integers only, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from turnout.core.types.layer_attention import LayerAttention

__all__ = ["KVDtype", "StoredDtype", "approximation", "bytes_per_token"]

KVDtype = Literal["auto", "bfloat16", "int8", "fp8"]
"""``auto`` is the dtype the model computes in; ``fp8`` is float8_e4m3fn."""
StoredDtype = Annotated[
    KVDtype,
    Field(
        description="Dtype in which keys and values are stored; `auto`: the one that the model computes in."
    ),
]
"""`KVDtype` as an option."""

SCALE_BYTES = {"int8": 2, "fp8": 2}
"""Bytes of a scale, in bfloat16; each token and KV head has one for keys and one for values."""


def approximation(dtype: KVDtype) -> str:
    """The value of `KVBackend.approximation`."""
    return "" if dtype == "auto" else dtype


def bytes_per_token(dtype: KVDtype, rules: Sequence[LayerAttention], itemsize: int) -> int:
    """Bytes of a token position's keys and values in all layers, with scales.

    rules: of the layers; itemsize: bytes of a number in the dtype that the model computes in.
    """
    number = {"auto": itemsize, "bfloat16": 2, "int8": 1, "fp8": 1}[dtype]
    scale = SCALE_BYTES.get(dtype, 0)
    return sum(rule.kv_numbers * number + rule.kv_vectors * scale for rule in rules)
