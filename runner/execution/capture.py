"""Captures work of the device, which one call then repeats; or one call for each piece of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from turnout.core.errors import TurnoutError
from turnout.core.interfaces.attention import Attend

__all__ = ["Capture", "CapturedPieces", "CudaCapture", "Forward", "choose_capture"]

Forward = Callable[[Tensor, Tensor, Attend], Tensor]
"""Token ids and positions, int64 [tokens], to hidden states [tokens, hidden_size]."""


class CapturedPieces(NamedTuple):
    """Work that was captured in pieces."""

    replays: list[Callable[[], None]]
    """Each repeats a piece, on the same memory; in the order of the pieces."""
    out: Tensor
    """What the last piece computes."""


class Capture(Protocol):
    """Captures work and replays it."""

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Returns what repeats `work` on the same memory; it returns the same tensor each time."""
        ...

    def capture_pieces(self, work: Callable[[Callable[[], None]], Tensor]) -> CapturedPieces:
        """Captures `work` in pieces. `work` is given a function that ends a piece and begins the next one."""
        ...


class CudaCapture:
    """Captures CUDA graphs, which all share one memory pool. Implements Capture.

    So pieces of the same work must be replayed in their order, and not between pieces of other work: what one
    piece leaves for another is in memory that other work uses, too.
    """

    def __init__(self) -> None:
        self._pool: Any = torch.cuda.graph_pool_handle()
        # One stream for all captures: memory that is freed is used again by its own stream alone.
        self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        (replay_all,), out = self.capture_pieces(lambda next_piece: work())

        def replay() -> Tensor:
            replay_all()
            return out

        return replay

    def capture_pieces(self, work: Callable[[Callable[[], None]], Tensor]) -> CapturedPieces:
        graphs: list[torch.cuda.CUDAGraph] = []

        def begin() -> None:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            graphs.append(graph)

        def next_piece() -> None:
            graphs[-1].capture_end()
            begin()

        torch.cuda.synchronize()  # nothing that runs may use memory that is about to be captured
        torch.cuda.empty_cache()  # not possible while capturing, when memory may be short
        with _named(), torch.cuda.stream(self._stream):
            begin()
            try:
                out = work(next_piece)
            finally:
                graphs[-1].capture_end()
        return CapturedPieces([graph.replay for graph in graphs], out)


def choose_capture(device: torch.device, eager: bool) -> Capture | None:
    """Returns CUDA graphs on a GPU, unless `eager`, which is ``--enforce-eager``; else None."""
    return CudaCapture() if device.type == "cuda" and not eager else None


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise TurnoutError(
            f"a step of this model cannot be captured in a CUDA graph ({error}); use --enforce-eager"
        ) from error
