"""Tensors on a GPU that is not there: they say ``cuda``, and are computed on the CPU.

What a GPU would refuse is refused: operands on different devices, kernels with memory of the host, waiting
while a graph is recorded. What it does later than it is asked to is late here, too: what was sent to the host
without waiting is not there until something has been waited for. And whenever the host waits, it is noted.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from card_order import Memory, Order, Seen
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["OnCard", "Recording", "Tensors"]

aten = torch.ops.aten
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
LOCKED_BYTES = 256 * 2**20


class OnCard(Tensor):
    """`held`, a tensor of the CPU, as if it were on a GPU. In `memory`, with its views."""

    held: Tensor
    memory: Memory

    @staticmethod
    def __new__(cls, held: Tensor, memory: Memory) -> OnCard:
        make: Any = Tensor._make_wrapper_subclass  # type: ignore[attr-defined]
        with torch.inference_mode(held.is_inference()):  # as a view of what was made outside is not
            made = make(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=CUDA,
                requires_grad=held.requires_grad,
            )
        made.held, made.memory = held, memory
        return made  # type: ignore[no-any-return]

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} while there is no card")

    # What PyTorch does to tensors of its own kind without an operator.

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def record_stream(self, stream: Any) -> None:
        self.memory.recorded.add(stream.number)

    def __repr__(self, **_: Any) -> str:
        return f"OnCard({self.held!r})"


class _Locked:
    """Host memory that a GPU reads by itself. None of it is used twice: it can be told by its address."""

    def __init__(self) -> None:
        self._memory = np.zeros(LOCKED_BYTES, np.uint8)  # what is not touched takes nothing
        self._used = 0
        self.ranges = {self._memory.ctypes.data: LOCKED_BYTES}

    def make(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = int(np.prod(shape))
        raw = torch.frombuffer(self._memory, dtype=dtype, count=max(1, count), offset=self._used)
        self._used += -(-raw.nbytes // 64) * 64
        return raw[:count].view(shape)

    def __contains__(self, tensor: Tensor) -> bool:
        address = tensor.data_ptr()
        return not tensor.numel() or any(
            first <= address < first + size for first, size in self.ranges.items()
        )


class _Crossing(NamedTuple):
    """A copy between the card and locked memory that the host has not waited for."""

    stream: int
    number: int
    host: Tensor
    content: Tensor
    arrives: bool
    """On the host; else it is read there."""

    def overlaps(self, other: Tensor) -> bool:
        first, second = self.host.data_ptr(), other.data_ptr()
        return first < second + other.nbytes and second < first + self.host.nbytes


class Recording:
    """What a graph does again."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.touched: list[tuple[Memory, bool]] = []
        self.fresh: list[Tensor] = []
        """Memory of its own, which other graphs use between two replays."""

    def take_down(self, call: Callable[[], Any], out: Any, made: list[Tensor]) -> None:
        """`call` computed `out`, of which `made` is not a view of what it was given."""
        self.fresh += made
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]

        def again() -> None:
            for old, new in zip(results, tree_leaves(call()), strict=True):
                old.copy_(new)

        self.calls.append(again)


class Tensors(TorchDispatchMode):
    """While it is on, there is a card."""

    def __init__(self) -> None:
        super().__init__()
        self.order = Order(self._arrived)
        self.locked = _Locked()
        self.waits: list[str] = []
        """What the host waited for, but for events and streams: the operator, and who asked for it."""
        self.recording: Recording | None = None
        self.replays = 0
        self._crossings: list[_Crossing] = []

    # ------------------------------------------------------------------ operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func._can_decompose():  # as happens before it comes here, but for inference mode
            with self:
                return func.decompose(*args, **kwargs)
        special: Any = {
            aten._to_copy.default: self._to,
            aten.copy_.default: self._copy,
            aten._pin_memory.default: self._lock,
            aten.pin_memory.default: self._lock,
            aten.is_pinned.default: lambda tensor, *_, **__: tensor in self.locked,
            aten.empty.memory_format: self._empty,
        }
        return special.get(func, partial(self._compute, func))(*args, **kwargs)

    def _compute(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = _tensors((args, kwargs))
        there = [tensor for tensor in tensors if isinstance(tensor, OnCard)]
        asked = kwargs.get("device")
        to_card = bool(there) if asked is None else torch.device(asked).type == "cuda"
        if not to_card:
            return func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if asked is not None:
            kwargs["device"] = CPU
        if func not in INDEXING:
            _check_devices(func, tensors)
        if _must_know(func, args):
            self._wait(str(func))
        return self._ask(func, args, kwargs, there)

    def _ask(self, func: Any, args: Any, kwargs: Any, there: list[OnCard]) -> Any:
        """Of the card: computed now, or taken down where a graph is recorded."""
        held, held_kwargs = tree_map(_held, args), tree_map(_held, kwargs)
        written = _written(func, args, kwargs)
        self._touch((tensor.memory, any(tensor is one for one in written)) for tensor in there)
        call = partial(func, *held, **held_kwargs)
        if self.recording is not None and written:
            self.recording.calls.append(call)
            return written[0] if len(written) == 1 else tuple(written)
        out = call()
        made = [leaf for leaf in _tensors(out) if not any(_shares(leaf, tensor.held) for tensor in there)]
        if "empty" in str(func) or (self.recording is not None and made):
            if self.recording is not None:
                self.recording.take_down(call, out, made)
            for leaf in made:
                _spoil(leaf)
        return tree_map(lambda leaf: self._placed(leaf, there), out)

    def _placed(self, leaf: Any, there: list[OnCard]) -> Any:
        """What an operator gave, as the card's."""
        if not isinstance(leaf, Tensor):
            return leaf
        for tensor in there:
            if leaf is tensor.held:
                return tensor
            if _shares(leaf, tensor.held):
                return OnCard(leaf, tensor.memory)
        memory = Memory(self.order, persistent=self.recording is not None)
        self._touch([(memory, True)])
        return OnCard(leaf, memory)

    def _touch(self, touched: Iterable[tuple[Memory, bool]]) -> None:
        """Work that reads there, or writes."""
        if self.recording is not None:
            self.recording.touched += touched
            return
        work = self.order.launch()
        for memory, writes in touched:
            self.order.touch(memory, work, writes)

    def launch(self, kernel: Callable[..., None], args: Any, kwargs: Any) -> None:
        """A kernel that is no operator of PyTorch; it may write to whatever it is given."""
        tensors: list[Any] = _tensors((args, kwargs))
        for tensor in tensors:
            if not isinstance(tensor, OnCard):
                raise RuntimeError(f"a kernel is given memory of the host: {tensor.shape}, {tensor.dtype}")
        self._touch((tensor.memory, True) for tensor in tensors)
        call = partial(kernel, *tree_map(_held, args), **tree_map(_held, kwargs))
        if self.recording is not None:
            self.recording.calls.append(call)
            return
        with _disable_current_modes():
            call()

    # ------------------------------------------------------------------ between host and card

    def _empty(self, size: Any, **kwargs: Any) -> Any:
        if kwargs.pop("pin_memory", False):
            return self.locked.make(tuple(size), kwargs.get("dtype") or torch.get_default_dtype())
        return self._compute(aten.empty.memory_format, size, **kwargs)

    def _lock(self, tensor: Tensor, device: Any = None) -> Tensor:
        return self.locked.make(tuple(tensor.shape), tensor.dtype).copy_(tensor)

    def _to(self, source: Tensor, *, device: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        target = source.device if device is None else torch.device(device)
        if isinstance(source, OnCard) == (target.type == "cuda"):
            return self._compute(aten._to_copy.default, source, **kwargs)
        if isinstance(source, OnCard):
            converted = aten._to_copy.default(source.held, **kwargs)
            here = self.locked.make(tuple(converted.shape), converted.dtype) if non_blocking else converted
            self._fetch(here, source, converted, non_blocking)
            return here
        self._send(source, non_blocking)
        return self._placed(aten._to_copy.default(source, **kwargs), [])

    def _copy(self, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if isinstance(target, OnCard) == isinstance(source, OnCard) or not source.dim():
            return self._compute(aten.copy_.default, target, source)  # type: ignore[no-any-return]
        if isinstance(source, OnCard):
            self._fetch(target, source, source.held.to(target.dtype, copy=True), non_blocking)
        elif isinstance(target, OnCard):
            self._send(source, non_blocking)
            self._touch([(target.memory, True)])
            target.held.copy_(source)
        return target

    def _send(self, source: Tensor, non_blocking: bool) -> None:
        """To the card, which reads it when it comes to that."""
        if self.recording is not None:
            raise RuntimeError("a graph that is recorded would read the host's memory when it is replayed")
        if non_blocking and source in self.locked:
            self._cross(source, source.clone(), arrives=False)
        else:
            self._wait("a copy from the host")

    def _fetch(self, here: Tensor, source: OnCard, content: Tensor, non_blocking: bool) -> None:
        """To the host: `content`, which is there after a wait."""
        if self.recording is not None:
            raise RuntimeError("a graph that is recorded would write to the host's memory")
        self._touch([(source.memory, False)])
        if non_blocking and here in self.locked:
            self._cross(here, content, arrives=True)
            return
        self._wait("a copy to the host")
        here.copy_(content)

    def _cross(self, host: Tensor, content: Tensor, arrives: bool) -> None:
        number, count = self.order.launch()
        before = [crossing for crossing in self._crossings if crossing.overlaps(host)]
        for crossing in before:  # over by then, if anything keeps them in order
            if self.order.streams[number].seen.get(crossing.stream, 0) < crossing.number:
                self.order.faults.append("two streams copy from and to the same memory of the host")
            self._finish(crossing)
        if before and not arrives:
            content = host.clone()
        if arrives:
            _spoil(host)
        self._crossings.append(_Crossing(number, count, host, content, arrives))

    def _arrived(self, seen: Seen) -> None:
        for crossing in list(self._crossings):
            if seen.get(crossing.stream, 0) >= crossing.number:
                self._finish(crossing)

    def _finish(self, crossing: _Crossing) -> None:
        self._crossings = [other for other in self._crossings if other is not crossing]
        if crossing.arrives:
            crossing.host.copy_(crossing.content)
        elif not _same(crossing.host, crossing.content):
            self.order.faults.append("the host changed what the card had not read yet")

    def _wait(self, what: str) -> None:
        """The host waits for all that the current stream has been asked."""
        if self.recording is not None:
            raise RuntimeError(f"the host waits while a graph is recorded: {what}")
        self.waits.append(f"{what}, {_caller()}")
        self.order.current.synchronize()

    # ------------------------------------------------------------------ graphs

    def replay(self, recording: Recording) -> None:
        self.replays += 1
        self._touch(recording.touched)
        with _disable_current_modes():
            for tensor in recording.fresh:
                _spoil(tensor)
            for call in recording.calls:
                call()


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, OnCard) else leaf


def _shares(one: Tensor, other: Tensor) -> bool:
    """Are they in the same memory?"""
    first, second = (tensor.untyped_storage().data_ptr() for tensor in (one, other))
    return one is other or (first == second and bool(first))


def _written(func: Any, args: Any, kwargs: Any) -> list[OnCard]:
    """Arguments that it writes to."""
    named = func._schema.arguments
    given = [*zip(named, args, strict=False), *((a, kwargs[a.name]) for a in named if a.name in kwargs)]
    written = [value for argument, value in given if argument.alias_info and argument.alias_info.is_write]
    return [leaf for leaf in _tensors(written) if isinstance(leaf, OnCard)]


def _check_devices(func: Any, tensors: list[Tensor]) -> None:
    """A single number may be the host's."""
    for tensor in tensors:
        if tensor.dim() and not isinstance(tensor, OnCard):
            raise RuntimeError(
                f"{func}: expected all tensors to be on the same device, but one of shape "
                f"{list(tensor.shape)} is on {tensor.device}"
            )


INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default)
KNOWING = (
    aten._local_scalar_dense.default,
    aten._unique2.default,
    aten.bincount.default,
    aten.equal.default,
    aten.masked_select.default,
    aten.nonzero.default,
    aten.repeat_interleave.Tensor,
)


def _must_know(func: Any, args: Any) -> bool:
    """Must the host know numbers that are on the card, or have its own there, for it to be asked for?"""
    if func in INDEXING:
        indices = [index for index in args[1] if index is not None]
        return any(not isinstance(i, OnCard) or i.dtype in (torch.bool, torch.uint8) for i in indices)
    return func in KNOWING


def _spoil(tensor: Tensor) -> None:
    """No reader may rely on what is there."""
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1:
        tensor.fill_(float("nan"))
    elif tensor.dtype != torch.bool and tensor.dtype.itemsize > 1:
        tensor.fill_(torch.iinfo(tensor.dtype).max // 3)


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _caller() -> str:
    """The innermost frame that is neither PyTorch's nor of these tests."""
    for frame in reversed(traceback.extract_stack()):
        if "/tests/gpu/support/card" not in frame.filename and "site-packages" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return ""
