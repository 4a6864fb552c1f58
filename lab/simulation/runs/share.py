"""Some replicas of a simulated fleet, in a process of their own.

A replica does not know the others: between two requests that it gets it goes on by itself.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Sequence
from math import inf

import msgspec

from turnout.core.engine.packed_prompt import unpacked
from turnout.core.errors import RequestError
from turnout.core.process import exit_with_spawner
from turnout.core.registry.registry import Registry
from turnout.lab.jobs.job import Job
from turnout.lab.results.record import Record
from turnout.lab.simulation.assembly import build_simulated
from turnout.lab.simulation.fleet import Specs, announcers_of
from turnout.lab.simulation.news import News
from turnout.lab.simulation.replica import SimulatedReplica, Totals
from turnout.lab.simulation.runs.messages import Answer, Ended, Order, Sent, Tidings
from turnout.lab.simulation.simulate import Simulation

__all__ = ["Share", "answer_order", "begin_share", "end_share"]


GARBAGE = 20_000, 20, 50
"""When Python looks for cycles: seldom, as it looks at all requests of hundreds of replicas."""


class Share:
    """Takes the steps of its replicas, window by window."""

    def __init__(self, simulation: Simulation, names: Sequence[str], *, watches: bool, reads: bool) -> None:
        """watches, reads: as of the router, which sees load, and caches."""
        registry = Registry.of(simulation.config)
        self._engines = [build_simulated(simulation.config, simulation.cost, registry) for _ in names]
        for engine, name in zip(self._engines, names, strict=True):
            engine.engine.locate(replica=name)
        fast_forward = simulation.fast_forward
        self._replicas = [SimulatedReplica(engine, fast_forward=fast_forward) for engine in self._engines]
        self._specs = Specs()
        announcers = announcers_of(self._engines) if reads else []
        self._news = News(self._engines, announcers) if watches else None
        self._heard = True
        """Requests may yet be routed by what replicas tell."""
        self._ended: list[Ended] = []

    def answer(self, order: Order) -> Answer:
        """Take the steps of a window, and tell what came of it; after one without an end, nothing is sent."""
        self._heard = order.until < inf
        for sent in order.sent:
            self._advance(sent.number, sent.at)
            self._add(sent)
        for number, replica in enumerate(self._replicas):
            if replica.now < order.until:
                self._advance(number, order.until)
        ended, self._ended = self._ended, []
        told = [] if self._news is None else self._news.drain()
        return Answer(ended, [Tidings(each.at, each.replica, [*each.blocks], each.load) for each in told])

    def totals(self) -> Totals:
        """Of all its replicas, which end."""
        for engine in self._engines:
            engine.engine.close()
        return sum((replica.totals() for replica in self._replicas), Totals())

    def _advance(self, number: int, until: float) -> None:
        """Take the steps of a replica that begin before a time."""
        replica = self._replicas[number]
        while replica.now < until and replica.busy:
            for record in replica.step():
                self._note_end(record)
            if self._news is not None and replica.changed:
                self._news.step(number, replica.now, last=not replica.busy)
                if not self._heard:  # else the answer would have the news of all steps that are left
                    self._news.drain()
            if replica.busy:
                replica.run_ahead()

    def _add(self, sent: Sent) -> None:
        prompt = unpacked(sent.prompt)
        job = Job(
            sent.at,
            len(prompt),
            sent.output,
            priority=sent.priority,
            client=sent.client,
            deadline_ms=sent.deadline_ms,
            ttft_deadline_ms=sent.ttft_deadline_ms,
        )
        record = Record(job, sent.index, due=sent.at, sent=sent.at)
        replica = self._replicas[sent.number]
        replica.take_back(sent.at)
        try:
            replica.add(self._specs.make(sent.index, job, prompt, sent.seed, sent.at), record)
        except RequestError as error:
            self._ended.append(Ended(sent.index, sent.at, b"", 0, str(error), refused=True))

    def _note_end(self, record: Record) -> None:
        times = array("d", record.token_times).tobytes()
        self._ended.append(Ended(record.index, record.finished, times, record.output_tokens, record.error))


# ------------------------------------------------------------------ in a process of its own

_mine: list[Share] = []
_decode = msgspec.msgpack.Decoder(Order).decode
_encode = msgspec.msgpack.Encoder().encode


def begin_share(simulation: Simulation, names: Sequence[str], watches: bool, reads: bool) -> None:
    """Raises ConfigError for what cannot work."""
    exit_with_spawner()
    gc.set_threshold(*GARBAGE)
    _mine[:] = [Share(simulation, names, watches=watches, reads=reads)]


def answer_order(order: bytes) -> bytes:
    """The `Answer` to an `Order`."""
    (share,) = _mine
    return _encode(share.answer(_decode(order)))


def end_share() -> Totals:
    """Of its replicas."""
    (share,) = _mine
    return share.totals()
