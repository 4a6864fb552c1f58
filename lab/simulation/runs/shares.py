"""The processes that have the replicas of a simulated fleet, as the process of its server sees them."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import msgspec

from turnout.core.interfaces.router import Router
from turnout.lab.simulation.replica import Totals
from turnout.lab.simulation.runs.messages import Answer, Order, Sent
from turnout.lab.simulation.runs.share import answer_order, begin_share, end_share
from turnout.lab.simulation.simulate import Simulation

__all__ = ["Shares"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode


class Shares:
    """Each process has replicas that follow each other, about as many as any other."""

    def __init__(self, simulation: Simulation, router: Router, workers: int) -> None:
        """Starts the processes. Raises ConfigError for what cannot work."""
        workers = min(workers, simulation.replicas)
        self._firsts = [simulation.replicas * number // workers for number in range(workers)]
        # Not by fork: a process that has threads, as torch starts them, cannot be copied safely.
        context = get_context("spawn")
        self._pools = [ProcessPoolExecutor(1, context) for _ in self._firsts]
        self._sent: list[list[Sent]] = [[] for _ in self._firsts]
        self._answers: deque[list[Future[bytes]]] = deque()
        """Of each order that `answers` has not returned, and each process."""
        # A process gets no jobs but those that it is sent.
        alone = replace(simulation, workload=replace(simulation.workload, jobs=()))
        names, ends = simulation.names, [*self._firsts[1:], simulation.replicas]
        begun = [
            pool.submit(begin_share, alone, names[first:end], router.watches, router.reads_caches)
            for pool, first, end in zip(self._pools, self._firsts, ends, strict=True)
        ]
        try:
            for each in begun:
                each.result()
        except BaseException:
            self.close()
            raise

    def send(self, number: int, sent: Sent) -> None:
        """Have a replica get a request with the next order. `sent.number` is the process's to say."""
        process = bisect_right(self._firsts, number) - 1
        sent.number = number - self._firsts[process]
        self._sent[process].append(sent)

    def order(self, until: float) -> None:
        """Have all steps taken that begin before a time."""
        orders = [_encode(Order(until, sent)) for sent in self._sent]
        self._sent = [[] for _ in self._firsts]
        self._answers.append(
            [pool.submit(answer_order, order) for pool, order in zip(self._pools, orders, strict=True)]
        )

    @property
    def orders(self) -> int:
        """How many there are whose answers have not been taken."""
        return len(self._answers)

    @property
    def answered(self) -> bool:
        """Whether `answers` need not wait."""
        return all(answer.done() for answer in self._answers[0])

    def answers(self) -> list[Answer]:
        """Return what came of the first order that has not been asked for, with replicas numbered as in the
        fleet."""
        answers = [_decode(answer.result()) for answer in self._answers.popleft()]
        for first, answer in zip(self._firsts, answers, strict=True):
            for each in answer.news:
                each.number += first
        return answers

    def totals(self) -> Totals:
        """Over all replicas, which end."""
        ended = [pool.submit(end_share) for pool in self._pools]
        return sum((each.result() for each in ended), Totals())

    def close(self) -> None:
        """End all processes."""
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)
