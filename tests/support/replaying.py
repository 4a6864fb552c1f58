"""Captured steps on a machine without graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from turnout.runner.execution.capture import CapturedPieces

__all__ = ["Recorder", "Tape"]


class Recorder:
    """Captures by running, and replays by running again, into the same memory. Implements Capture."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0
        self.cuts = self.pieces = 0
        """Times that something was recorded in pieces, and pieces that were replayed."""

    def capture(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.captured += 1
        out = work()

        def replay() -> Tensor:
            self.replayed += 1
            return out.copy_(work())

        return replay

    def capture_pieces(self, work: Callable[[Callable[[], None]], Tensor]) -> CapturedPieces:
        """Pieces cannot be run again as they are: their operators are taken down, one by one."""
        self.cuts += 1
        tapes = [Tape()]

        def go_on() -> None:
            tapes[-1].__exit__(None, None, None)
            tapes.append(Tape())
            tapes[-1].__enter__()

        tapes[0].__enter__()
        try:
            out = work(go_on)
        finally:
            tapes[-1].__exit__(None, None, None)
        return CapturedPieces([self._counted(tape) for tape in tapes], out)

    def _counted(self, tape: Tape) -> Callable[[], None]:
        def replay() -> None:
            self.pieces += 1
            tape.replay()

        return replay


class Tape(TorchDispatchMode):
    """Takes down what is computed while it is on, and computes it again into the same memory.

    As a graph does: what is not an operator of PyTorch, or a kernel of Triton's interpreter, is not repeated.
    """

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []

    def __enter__(self) -> Any:
        self._listening = _launches_told_to(self)
        self._listening.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._listening.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.note(func, args, kwargs or {}, out)
        return out

    def note(self, func: Callable[..., Any], args: Any, kwargs: Any, out: Any) -> None:
        self._calls.append((func, args, kwargs, out))

    def replay(self) -> None:
        for func, args, kwargs, out in self._calls:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():  # else a view, or in place
                    old.copy_(new)


@contextmanager
def _launches_told_to(tape: Tape) -> Iterator[None]:
    """Launches of kernels under Triton's interpreter, where there is one."""
    try:
        from triton.runtime.interpreter import GridExecutor
    except ImportError:
        yield
        return
    original = GridExecutor.__call__

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        with _disable_current_modes():
            original(self, *args, **kwargs)
        tape.note(lambda *a, **k: original(self, *a, **k), args, kwargs, None)

    GridExecutor.__call__ = launch
    try:
        yield
    finally:
        GridExecutor.__call__ = original
