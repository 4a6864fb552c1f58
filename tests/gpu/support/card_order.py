"""What a GPU does in which order: streams, events, what the host has waited for, and who may touch what when.

Vector clocks, as CUDA's own sanitizer in PyTorch keeps them: every piece of work has a number in its stream,
and a stream knows of each other stream up to which number it has waited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

__all__ = ["Event", "Memory", "Order", "Stream"]

Seen = dict[int, int]
"""Of each stream, by its number, the work that has been waited for: all up to that one."""


class Memory:
    """Device memory that was allocated in one piece."""

    def __init__(self, order: Order, persistent: bool = False) -> None:
        """persistent: never given back, as a graph's own."""
        self._order = order
        self.home = order.current
        self.persistent = persistent
        self.written: tuple[int, int] | None = None
        """Stream and number of the work that wrote there last."""
        self.read: Seen = {}
        self.recorded: set[int] = set()
        """Streams that `Tensor.record_stream` named."""

    def __del__(self) -> None:
        if not self.persistent:
            self._order.freed(self)


class Order:
    """Numbers work, and finds fault with work that nothing keeps in order."""

    def __init__(self, waited: Callable[[Seen], None] = lambda seen: None) -> None:
        """waited: told what the host has waited for, whenever it has."""
        self.faults: list[str] = []
        self.left: list[int] = []
        """What had been asked of the current stream after it, for each event that the host waited for."""
        self.host: Seen = {}
        self.streams: list[Stream] = []
        self.current = Stream(self)
        self._waited = waited

    def launch(self) -> tuple[int, int]:
        """Work on the current stream: its stream and number."""
        stream = self.current
        stream.merge(self.host)
        stream.count += 1
        stream.seen[stream.number] = stream.count
        return stream.number, stream.count

    def touch(self, memory: Memory, work: tuple[int, int], writes: bool) -> None:
        """That work reads there, or writes. Faults: what it does not come behind."""
        number, count = work
        seen = self.streams[number].seen
        before = list(memory.read.items()) if writes else []
        if memory.written is not None:
            before.append(memory.written)
        for other, last in before:
            if other != number and seen.get(other, 0) < last:
                self.faults.append(f"stream {number} touches what stream {other} may still be at")
        if writes:
            memory.written, memory.read = work, {}
        else:
            memory.read[number] = count

    def freed(self, memory: Memory) -> None:
        """It may be given to the next who asks on the stream it was allocated for."""
        home = memory.home
        uses = [*memory.read.items(), *([memory.written] if memory.written else [])]
        for other, last in uses:
            if other == home.number or other in memory.recorded:
                continue
            if max(home.seen.get(other, 0), self.host.get(other, 0)) < last:
                self.faults.append(f"memory of stream {home.number} is freed while stream {other} is at it")

    def wait_for(self, seen: Seen) -> None:
        """The host has."""
        _merge(self.host, seen)
        self._waited(self.host)

    def wait_for_all(self) -> None:
        for stream in self.streams:
            _merge(self.host, stream.seen)
        self._waited(self.host)

    @contextmanager
    def on(self, stream: Stream | None) -> Iterator[None]:
        before, self.current = self.current, stream or self.current
        try:
            yield
        finally:
            self.current = before


class Stream:
    """Stands in for torch.cuda.Stream."""

    def __init__(self, order: Order, device: object = None, priority: int = 0) -> None:
        self.order = order
        self.number = len(order.streams)
        self.count = 0
        self.seen: Seen = {}
        self.device = torch.device("cuda", 0)
        order.streams.append(self)

    def merge(self, seen: Seen) -> None:
        _merge(self.seen, seen)

    def wait_stream(self, other: Stream) -> None:
        self.merge(other.seen)

    def wait_event(self, event: Event) -> None:
        self.merge(event.seen)

    def synchronize(self) -> None:
        self.order.wait_for(self.seen)


class Event:
    """Stands in for torch.cuda.Event."""

    def __init__(self, order: Order, enable_timing: bool = False, blocking: bool = False) -> None:
        self._order = order
        self.seen: Seen = {}

    def record(self, stream: Stream | None = None) -> None:
        self.seen = dict((stream or self._order.current).seen)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or self._order.current).wait_event(self)

    def synchronize(self) -> None:
        current = self._order.current
        self._order.left.append(current.count - self.seen.get(current.number, 0))
        self._order.wait_for(self.seen)

    def query(self) -> bool:
        return all(self._order.host.get(number, 0) >= count for number, count in self.seen.items())

    def elapsed_time(self, other: Event) -> float:
        """In milliseconds; there is no clock."""
        return 1.0


def _merge(into: Seen, seen: Seen) -> None:
    for number, count in seen.items():
        into[number] = max(into.get(number, 0), count)
