"""What the process of a simulated server and those of its replicas tell each other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnout.core.types.block_events import BlockEvent

__all__ = ["Answer", "Ended", "Order", "Sent", "Tidings"]


class Sent(msgspec.Struct, array_like=True):
    """A request that a replica gets."""

    at: float
    number: int
    """The replica, among those of its process."""
    index: int
    """Of the job."""
    prompt: bytes
    """Token ids, as `packed` packs them."""
    output: int
    seed: int
    priority: int
    client: str
    deadline_ms: float | None
    ttft_deadline_ms: float | None


class Order(msgspec.Struct, frozen=True, array_like=True):
    """What is sent in a window of time, and its end: all steps that begin before are to be taken."""

    until: float
    sent: Sequence[Sent]
    """By time."""


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """What was measured of a request that ends with a step of a window, or was refused."""

    index: int
    finished: float
    token_times: bytes
    """Doubles."""
    output_tokens: int
    error: str = ""
    refused: bool = False
    """The engine has not taken it on."""


class Tidings(msgspec.Struct, array_like=True):
    """As `news.Told`."""

    at: float
    number: int
    blocks: list[BlockEvent]
    load: tuple[int, float] | None


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What came of an `Order`."""

    ended: list[Ended]
    news: list[Tidings]
