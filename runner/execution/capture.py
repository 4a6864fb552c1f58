"""Work of the device that is recorded once and asked for again by one call, or one for each piece of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from turnout.core.errors import TurnoutError
from turnout.core.interfaces.attention import Attend

__all__ = ["Capture", "CudaCapture", "Forward", "Pieces", "choose_capture"]

Forward = Callable[[Tensor, Tensor, Attend], Tensor]
"""Token ids and positions, int64 [tokens], to hidden states [tokens, hidden_size]."""


class Pieces(NamedTuple):
    """Work that was recorded in pieces."""

    replays: list[Callable[[], None]]
    """Each does a piece again, on the same memory; in their order."""
    out: Tensor
    """What the last one computes."""


class Capture(Protocol):
    """Records work and replays it."""

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """What does `work` again, on the same memory, and returns the same tensor each time."""
        ...

    def cut(self, work: Callable[[Callable[[], None]], Tensor]) -> Pieces:
        """Records `work` in pieces. It is given what ends a piece and begins the next one."""
        ...


class CudaCapture:
    """CUDA graphs; all of them share one memory pool.

    So pieces of the same work must be replayed in their order, and not between those of other work: what one
    of them leaves for another is in memory that others use, too.
    """

    def __init__(self) -> None:
        self._pool: Any = torch.cuda.graph_pool_handle()
        # Of one stream, since memory that is freed is used again by that stream alone.
        self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        (replay_all,), out = self.cut(lambda go_on: work())

        def replay() -> Tensor:
            replay_all()
            return out

        return replay

    def cut(self, work: Callable[[Callable[[], None]], Tensor]) -> Pieces:
        graphs: list[torch.cuda.CUDAGraph] = []

        def begin() -> None:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            graphs.append(graph)

        def go_on() -> None:
            graphs[-1].capture_end()
            begin()

        torch.cuda.synchronize()  # nothing that runs may use memory that is about to be recorded
        torch.cuda.empty_cache()  # which cannot be done while something is recorded, if memory is short then
        with _named(), torch.cuda.stream(self._stream):
            begin()
            try:
                out = work(go_on)
            finally:
                graphs[-1].capture_end()
        return Pieces([graph.replay for graph in graphs], out)


def choose_capture(device: torch.device, eager: bool) -> Capture | None:
    """eager: as ``--enforce-eager`` says."""
    return CudaCapture() if device.type == "cuda" and not eager else None


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise TurnoutError(
            f"a step of this model cannot be captured in a CUDA graph ({error}); use --enforce-eager"
        ) from error
