"""What the configuration takes from the built-in plugins: names and limits, without importing the plugins."""

from __future__ import annotations

__all__ = [
    "ADMISSION",
    "DECODING",
    "KV",
    "KV_EVICTION",
    "LENGTH_PREDICTOR",
    "MAX_DRAFT",
    "SCHEDULER",
    "UNQUANTIZED",
]

SCHEDULER = "fcfs"
LENGTH_PREDICTOR = "max_tokens"
ADMISSION = "none"
KV = "paged"
KV_EVICTION = "lru"
DECODING = "sampling"

UNQUANTIZED = "none"
"""The quantizer that leaves weights as they are."""

MAX_DRAFT = 32
"""Draft tokens that one step may verify for a sequence in speculative decoding."""
