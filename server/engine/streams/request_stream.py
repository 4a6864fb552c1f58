"""A request whose deltas a client waits for: what has come of it, and so where another engine would go on."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

import msgspec

from turnout.core.clock import monotonic
from turnout.core.engine.client import TakesAtOnce
from turnout.core.errors import ContextExceeded, Dropped, EngineError, Overloaded, RequestError
from turnout.core.logs import about
from turnout.core.types.logprobs import PackedLogprobs, TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec, Resumption, Timing
from turnout.server.engine.streams.restart_limit import WINDOW_SECONDS, RestartLimit
from turnout.server.engine.streams.unread import Unread, delta_size

__all__ = ["RequestStream"]

logger = logging.getLogger(__name__)

TURN = 32
"""Deltas that a generator takes, if so many are there, before others have their turn."""
TRIAL_EVENTS = 2
"""Of a suspect until the next is tried, each as large as its largest. What is in one may have been made
before, and lost with the engine that died. Time alone does not tell: the next engine may be slower."""


class RequestStream:
    """Queues the engine's deltas for the generator that takes them, and notes what resuming would need."""

    def __init__(
        self, spec: RequestSpec, unread: Unread | None = None, at_once: TakesAtOnce | None = None
    ) -> None:
        """unread: the sum over all streams; None: this stream's alone. at_once: as `EngineClient.submit` has
        it."""
        self.spec = spec
        self.unread = 0
        """About the bytes that have come and were not taken."""
        self._all_unread = unread or Unread()
        self._at_once = at_once
        self.awaits_timing = spec.timing
        self.over = False
        """The engine has nothing more to do for the request."""
        self.suspicion: int | None = None
        """The place among the suspects of the death of an engine, from 0 on; None: it is none."""
        self.apart = False
        """As a suspect, it is to share an engine with no other request."""
        self.deaths = 0
        """Engines that died while it was a suspect, since it was last cleared."""
        self.counted_by: list[RestartLimit] = []
        """The limits of restarts that count those deaths."""
        self._certain_deaths: deque[float] = deque()
        """When such engines died that had no other suspect."""
        self._tokens_before = 0
        """Of its longest choice when the engine that serves it took it over."""
        self._largest_event = 1
        """Tokens that came at once for a choice."""
        self._first_here: float | None = None
        """When the first token came from the engine that serves it."""
        self.outputs: dict[int, list[int]] = {}
        """The tokens delivered so far, by choice."""
        self.done: set[int] = set()
        """The choices that have ended."""
        self._prompt_scores = PackedLogprobs()
        """Those that came before the first delta."""
        self._begun: tuple[float, float] | None = None
        """As the first delta told it."""
        self._first_token: float | None = None
        self._finished: float | None = None
        """When the last of its choices ended."""
        self._cached_tokens = 0
        self._interrupted: list[float] = []
        self._queue: deque[Delta | Exception | None] = deque()
        self._taken = 0
        self._awaited: asyncio.Future[None] | None = None
        """What the generator waits for while the queue is empty."""

    @property
    def complete(self) -> bool:
        """All choices have ended; only the timing may be missing."""
        return len(self.done) >= self.spec.params.n

    async def next(self) -> Delta | None:
        """The next delta; None after the last. Raises the error that the request ended with."""
        self._taken += 1
        if not self._taken % TURN and self._queue:
            await asyncio.sleep(0)  # thousands may be there for a client that fell behind
        while not self._queue:
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited
        item = self._queue.popleft()
        if isinstance(item, Exception):
            raise item
        if item is not None:
            self._note_unread(-delta_size(item))
        return item

    def deliver(self, delta: Delta) -> None:
        """Take a delta from the engine."""
        if self.over:
            return
        if delta.error or delta.error_kind:
            self.fail(_error(delta))
            return
        if delta.timing is not None or delta.finish_reason == "abort":  # the answer to an `Abort`
            self.awaits_timing = False
            if delta.timing is None:  # the engine that knew the request is gone
                delta = msgspec.structs.replace(delta, timing=self._own_timing())
        elif delta.index in self.done:
            return
        if delta.prompt_logprobs is not None:
            self.add_prompt_scores(delta.prompt_logprobs)
            delta = msgspec.structs.replace(delta, prompt_logprobs=self._prompt_scores)
            self._prompt_scores = PackedLogprobs()
            if self.over:
                return
        self._note(delta)
        if delta.finish_reason or not self._taken_at_once(delta):
            self._put(delta)
            self._note_unread(delta_size(delta))
        if delta.finish_reason:
            self._finish(delta.index)

    def _taken_at_once(self, delta: Delta) -> bool:
        """Whether the delta needs no queue: the generator waits, so it has taken all before."""
        if self._at_once is None or self._awaited is None or self._awaited.done():
            return False
        try:
            return self._at_once(delta)
        except Exception as error:
            self._put(error)
            return True

    def add_prompt_scores(self, scores: Sequence[TokenLogprobs]) -> None:
        """Take a part of the prompt's log-probabilities, which are passed on with the first delta."""
        if self.over:
            return
        try:
            self._prompt_scores.extend(scores)
        except OverflowError:
            self.fail(EngineError("a plugin gave log-probabilities of what is no token id"))

    def abort(self, index: int | None) -> None:
        """End a choice, or with None all choices."""
        for aborted in range(self.spec.params.n) if index is None else (index,):
            self._finish(aborted)

    def fail(self, error: Exception) -> None:
        """End the request with an error; without one if all its choices have ended."""
        if not self.over and not self.end_if_complete():
            self.over = True
            self._put(error)

    def end_if_complete(self) -> bool:
        """End the request if only its timing is missing, which no engine knows any more.

        Returns whether it was so. The timing is then what is known here: without preemptions other than by
        the loss of an engine.
        """
        if self.over or not self.complete:
            return False
        self.deliver(Delta(request_id=self.spec.id, finish_reason="abort"))
        return True

    def give_up(self) -> None:
        """End a request whose client takes too little: what waits for it is dropped."""
        message = f"the client reads too slowly: {self.unread:,} bytes wait for it, and others' answers too"
        with about(self.spec.log_id):
            logger.warning("request %s is given up: %s", self.spec.id, message)
        self._queue.clear()
        self.forget_unread()
        self.over = True
        self._put(Overloaded(f"{message}; try again later"))

    def forget_unread(self) -> None:
        """Note that no client will take what has come."""
        self._note_unread(-self.unread)

    # -------------------------------------------------------------- surviving an engine

    def interrupt(self) -> None:
        """Note that the engine that served the request serves it no more, and another is to go on."""
        self._interrupted.append(monotonic())
        self._prompt_scores = PackedLogprobs()  # the next engine sends all of them
        self._tokens_before, self._first_here = self._longest, None

    def suspect(self, place: int, *, certain: bool, apart: bool) -> None:
        """Note that the request may have ended its engine."""
        self.suspicion, self.apart = place, apart
        self.deaths += 1
        if certain:
            self._certain_deaths.append(monotonic())

    def clear(self) -> None:
        """Note that the request is no suspect any more."""
        self.suspicion, self.apart, self.deaths = None, False, 0
        self.counted_by.clear()

    @property
    def certain_deaths(self) -> int:
        """Engines that died of late, and that this request alone can have ended."""
        while self._certain_deaths and self._certain_deaths[0] <= monotonic() - WINDOW_SECONDS:
            self._certain_deaths.popleft()
        return len(self._certain_deaths)

    @property
    def proven(self) -> bool:
        """Tokens have come from the engine that serves it."""
        return self._longest > self._tokens_before

    def survived(self, seconds: float) -> bool:
        """Whether it has been tried for long enough: more tokens have come than were lost with an engine, the
        first of them so long ago."""
        made = self._longest - self._tokens_before
        if self._first_here is None or made < TRIAL_EVENTS * self._largest_event:
            return False
        return monotonic() >= self._first_here + seconds

    @property
    def _longest(self) -> int:
        return max(map(len, self.outputs.values()), default=0)

    def resumed(self) -> RequestSpec:
        """The request for another engine, which goes on after the last token that was delivered."""
        if not self._interrupted:
            return self.spec
        # A choice may have no token yet where others have some.
        left = (
            [index for index in range(self.spec.params.n) if index not in self.done] if self.outputs else []
        )
        resume = Resumption(
            choices=[(index, self.outputs.get(index, [])) for index in left],
            cached_tokens=self._cached_tokens,
            first_token=self._first_token,
            interrupted=self._interrupted,
        )
        return msgspec.structs.replace(self.spec, resume=resume)

    # -------------------------------------------------------------- details

    def _put(self, item: Delta | Exception | None) -> None:
        """Queues an item; asyncio's own queue takes three times as long, for each token."""
        self._queue.append(item)
        if self._awaited is not None:
            if not self._awaited.done():
                self._awaited.set_result(None)
            self._awaited = None

    def _note_unread(self, size: int) -> None:
        self.unread += size
        self._all_unread.add(size)

    def _note(self, delta: Delta) -> None:
        if self._first_here is None:
            self._first_here = monotonic()
        if self._first_token is None:
            self._first_token, self._cached_tokens = monotonic(), delta.cached_tokens
            self._begun = delta.begun
        self._largest_event = max(self._largest_event, len(delta.tokens))
        self.outputs.setdefault(delta.index, []).extend(delta.tokens)

    def _own_timing(self) -> Timing | None:
        arrival = self.spec.arrival
        if not self.spec.timing or arrival is None:
            return None
        timing = Timing(arrival=arrival, finished=self._finished, preempted=list(self._interrupted))
        if self._begun is not None:
            timing.scheduled = arrival + self._begun[0]
            timing.first_token = timing.scheduled + self._begun[1]
        return timing

    def _finish(self, index: int) -> None:
        self.done.add(index)
        if self.complete and self._finished is None:
            self._finished = monotonic()
        if self.complete and not self.awaits_timing and not self.over:
            self.over = True
            self._put(None)


def _error(delta: Delta) -> Exception:
    if delta.error_kind == "context":
        return ContextExceeded(delta.error, delta.error_param)
    if delta.error_kind == "invalid":
        return RequestError(delta.error, delta.error_param)
    if delta.error_kind == "overloaded":
        return Overloaded(delta.error, retry_after=delta.retry_after)
    if delta.error_kind == "timeout":
        return Dropped(delta.error or "the scheduling policy gave the request up")
    return EngineError(delta.error)
