"""A fleet whose replicas are simulated in several processes, whatever its router looks at.

::

    this process   routes window 2 ─┐ takes what came of 1, routes 3 ─┐ takes what came of 2, routes 4 ─┐
    the others      steps of 1 ─────┴▶ steps of 2 ────────────────────┴▶ steps of 3 ────────────────────┴▶

What a step did is known outside when it has ended. No step is shorter than an empty one, and a window is half
as long as that: so no step that begins in a window changes what is sent in it or in the next, and where, and
all processes are at work. Where a window has another length, what came of it is waited for. Records are those
of one process.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import NamedTuple

from turnout.core.engine.packed_prompt import PackedPrompt
from turnout.core.interfaces.router import Router
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.registry.registry import Registry
from turnout.lab.results.record import Record
from turnout.lab.simulation.assembly import SimulatedEngine, build_simulated
from turnout.lab.simulation.cost import Work
from turnout.lab.simulation.fleet import Mix
from turnout.lab.simulation.news import Told
from turnout.lab.simulation.replica import Totals
from turnout.lab.simulation.routing import Routing
from turnout.lab.simulation.runs.messages import Answer, Ended, Sent
from turnout.lab.simulation.runs.shares import Shares
from turnout.lab.simulation.simulate import Simulation
from turnout.lab.simulation.traffic import Traffic

__all__ = ["WindowedFleet", "windowed"]

FEWEST = 32
"""Replicas for which processes are worth what they tell each other."""
AHEAD = 512
"""Prompts that are made before they are due, while other processes are at work."""


def windowed(simulation: Simulation) -> bool:
    """Whether a fleet can be simulated so, and is large enough for it.

    In one process each step can be watched, and an engine may itself decide what it takes on.
    """
    if simulation.watch is not None or simulation.recording is not None or simulation.replicas < FEWEST:
        return False
    engine = _engine_of(simulation)
    decides = type(engine.scheduler.policy).check is not SchedulingPolicy.check
    return not (decides or engine.watched or engine.engine.shedding.watches) and _window(simulation) > 0


def _engine_of(simulation: Simulation) -> SimulatedEngine:
    """One as all."""
    return build_simulated(simulation.config, simulation.cost, Registry.of(simulation.config))


def _window(simulation: Simulation) -> float:
    """Seconds that no step is shorter than."""
    return 0.99 * simulation.cost.seconds.of(Work())


class _Place(NamedTuple):
    """Where a request is served."""

    record: Record
    number: int
    tokens: int
    """That it may become; 0: it was refused."""
    times: bytes = b""
    """When its tokens came, as in `Ended`: many requests may end in one window."""

    def whole(self) -> Record:
        """Its record, with the times of tokens."""
        times = array("d")
        times.frombytes(self.times)
        self.record.token_times = times.tolist()
        return self.record


class WindowedFleet:
    """Serves one workload, once."""

    def __init__(self, simulation: Simulation, router: Router, workers: int) -> None:
        """`workers`: processes for replicas. Raises ConfigError for what cannot work."""
        engine, self._window = _engine_of(simulation), _window(simulation) / 2
        self._script, self._limits = engine.script, engine.engine.limits
        self._routing = Routing(router, simulation.names)
        self._news: list[Told] = []
        self._numbers = count()
        self._ended: list[tuple[float, int]] = []
        """When requests end, and which: a heap."""
        self._open: dict[int, _Place] = {}
        self._shares = Shares(simulation, router, workers)

    def totals(self) -> Totals:
        """Of all replicas, which end."""
        return self._shares.totals()

    def close(self) -> None:
        """End all processes."""
        self._shares.close()

    def serve(self, traffic: Traffic, mix: Mix) -> Iterator[Record]:
        """Records in the order in which requests end."""
        due, now = _Due(traffic, mix, self._routing.packed), 0.0
        while self._open or due.next < inf:
            if not self._open:
                self._take_answers(due, left=0)
                now = max(now, due.next)
            horizon = now + self._window
            # What is sent later may not come before, where it follows what has ended.
            end = horizon if traffic.follows else max(horizon, due.next)
            ended, now = self._route(due, horizon, end)
            self._shares.order(now)
            # While others are at work: what is done with these, and prompts to come.
            while ended:
                yield ended.popleft().whole()
            self._take_answers(due, left=1 if now == end == horizon else 0)
        self._take_answers(due, left=0)

    def _take_answers(self, due: _Due, left: int) -> None:
        """Take what came of all orders but the last, if `left` is 1."""
        while self._shares.orders > left:
            while not self._shares.answered and due.prepare():
                pass
            for answer in self._shares.answers():
                self._take(answer)

    def _route(self, due: _Due, horizon: float, end: float) -> tuple[deque[_Place], float]:
        """Send what is due in a window; returns what ends before `horizon`, and the window's end."""
        ended = deque[_Place]()
        while True:
            ends = self._ended[0][0] if self._ended else inf
            if ends <= due.next and ends < horizon:
                ended.append(self._finish(due))
            elif due.next < min(ends, end):
                at, index = due.pop()
                if self._send(at, index, due):
                    return ended, at
            else:
                return ended, end

    def _finish(self, due: _Due) -> _Place:
        at, index = heappop(self._ended)
        place = self._open.pop(index)
        if place.tokens:
            self._routing.count(place.number, -1, -place.tokens)
        due.mix.end(place.record, self._script)
        due.follow(index, at)
        return place

    def _send(self, at: float, index: int, due: _Due) -> bool:
        """Returns whether the engine may refuse it: then what is sent next must wait for its word."""
        mix, job, prompt = due.mix, due.mix.jobs[index], due.prompt(index)
        while self._news and self._news[0].at <= at:
            self._routing.take((heappop(self._news),))
        number = self._routing.choose(mix.routable(index, prompt))
        full = self._routing.requests(number) >= self._limits.max_waiting
        tokens = len(prompt) + job.output
        self._routing.count(number, 1, tokens)
        record = Record(job, index, due=at, sent=at, prompt_tokens=len(prompt))
        self._open[index] = _Place(record, number, tokens)
        seed = mix.seed_of(index)
        about = (job.priority, job.client, job.deadline_ms, job.ttft_deadline_ms)
        sent = Sent(at, 0, index, prompt.packed, job.output, seed, *about)
        self._shares.send(number, sent)
        return full or len(prompt) + max(1, job.output) > self._limits.max_model_len

    def _take(self, answer: Answer) -> None:
        for told in answer.news:
            heappush(self._news, Told(told.at, next(self._numbers), told.number, told.blocks, told.load))
        for ended in answer.ended:
            self._take_end(ended)

    def _take_end(self, ended: Ended) -> None:
        place = self._open[ended.index]
        record = place.record
        if ended.refused:
            self._routing.count(place.number, -1, -place.tokens)
            self._open[ended.index] = place._replace(tokens=0)
        else:
            self._open[ended.index] = place._replace(times=ended.token_times)
        record.finished, record.output_tokens, record.error = ended.finished, ended.output_tokens, ended.error
        heappush(self._ended, (ended.finished, ended.index))


class _Due:
    """What is to be sent next."""

    def __init__(self, traffic: Traffic, mix: Mix, packed: Callable[[Sequence[int]], PackedPrompt]) -> None:
        self.mix = mix
        self._packed = packed
        self._traffic, self._first = traffic, traffic.first()
        self._looked: deque[tuple[float, int]] = deque()
        """Those of the first that have been looked at, by time."""
        self._prompts: dict[int, PackedPrompt] = {}
        self._followers: list[tuple[float, int, int]] = []
        """When, a number, and which: a heap."""
        self._numbers = count()
        self._look()

    @property
    def next(self) -> float:
        """When it is; inf: there is nothing."""
        first = self._looked[0][0] if self._looked else inf
        return min(first, self._followers[0][0]) if self._followers else first

    def pop(self) -> tuple[float, int]:
        """Returns when, and which."""
        if self._followers and not (self._looked and self._looked[0][0] <= self._followers[0][0]):
            at, _, index = heappop(self._followers)
            return at, index
        found = self._looked.popleft()
        if not self._looked:
            self._look()
        return found

    def follow(self, index: int, now: float) -> None:
        """Take in what follows a request that has ended."""
        for at, follower in self._traffic.after(index, now):
            heappush(self._followers, (at, next(self._numbers), follower))

    def prompt(self, index: int) -> PackedPrompt:
        """To be asked for once."""
        made = self._prompts.pop(index, None)
        return self._packed(self.mix.prompt(index)) if made is None else made

    def prepare(self) -> bool:
        """Make a prompt before it is due; returns whether there is another one to make."""
        if len(self._looked) >= AHEAD or not self._look():
            return False
        _, index = self._looked[-1]
        if not self.mix.jobs[index].session:  # else it depends on answers
            self._prompts[index] = self._packed(self.mix.prompt(index))
        return True

    def _look(self) -> bool:
        found = next(self._first, None)
        if found is not None:
            self._looked.append(found)
        return found is not None
