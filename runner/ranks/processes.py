"""The followers of an engine on several devices: processes, watched from rank 0.

    rank 0                                             follower
    Ranks.send ───────────── frames ───────────────▶  FollowerChannel.frames
    Ranks.receive ◀─┐
                    watcher ◀── words, signs of life ─  FollowerChannel.say, a heartbeat's thread
                            ◀── standard error ───────

The follower of a rank on another machine is there; here is a process that passes on what both say.

A follower that ends, or is silent for too long, ends the group: the watcher ends all other followers, aborts
the collectives that rank 0 may be waiting in, and from then on every call raises RankLost, with that rank's
last words.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from turnout.config import EngineConfig
from turnout.core.errors import CollectiveError, RankLost
from turnout.core.interfaces.collective import Collective
from turnout.core.meeting import Meeting
from turnout.runner.ranks.followers import Follower
from turnout.runner.ranks.hosts import RankHosts, own_address
from turnout.runner.ranks.meetings import Meetings
from turnout.runner.ranks.silence import TIMING, Timing
from turnout.runner.ranks.watcher import Watcher

__all__ = ["FOLLOWER", "Ranks", "Word", "config_of_rank"]

logger = logging.getLogger(__name__)

FOLLOWER = "turnout.runner.follower.main"
"""The module that a follower's process runs; it enters `follower_channel`."""
ELSEWHERE = "turnout.server.worker.ranks.proxy"
"""The module of a process that stands for a follower on another machine."""
VERDICT_SECONDS = 5.0
"""A broken connection may be noticed so much earlier than the end of the process behind it."""


class Word(NamedTuple):
    """What a follower said."""

    rank: int
    text: bytes


class Ranks:
    """The followers, as rank 0 has them."""

    def __init__(self, followers: Sequence[Follower], meetings: Meetings, timing: Timing) -> None:
        """Use `start`."""
        self.size = len(followers) + 1
        self.meetings = meetings
        """Where collectives of the ranks meet."""
        self._followers = followers
        self._words: queue.SimpleQueue[Word | None] = queue.SimpleQueue()
        self._aborts: list[Callable[[], None]] = []
        self._lost: RankLost | None = None
        self._loss: Future[None] = Future()
        """Done once a rank is lost."""
        self._deserted = False
        """A thread waits for a lost rank still, where ranks meet."""
        self._closed = False
        self._watcher = Watcher(followers, timing, self._said, self._lose)

    @classmethod
    def start(
        cls,
        config: EngineConfig,
        size: int,
        *,
        module: str = FOLLOWER,
        timing: Timing = TIMING,
        hosts: RankHosts | None = None,
        model: str | None = None,
    ) -> Self:
        """Starts followers 1 to `size` - 1, each with its part of `config`; returns before they are ready.

        hosts: which machine has which; None: this one has all. model: what they find it by on others.
        Raises OSError if the system has no room for a process, ConfigError where a machine is not reached.
        """
        hosts, numbers = hosts or RankHosts((), size), range(1, size)
        meetings = _meetings(hosts)
        followers = [
            Follower(
                module if hosts.worker_of(rank) is None else ELSEWHERE,
                rank,
                size,
                meetings.here,
                timing,
                _more(config, meetings, hosts.worker_of(rank)),
            )
            for rank in numbers
        ]
        ranks = cls(followers, meetings, timing)
        configs = [config_of_rank(config, rank, hosts.each) for rank in numbers]
        if model is not None:
            configs = [
                each if hosts.worker_of(rank) is None else each.model_copy(update={"model": model})
                for rank, each in zip(numbers, configs, strict=True)
            ]
        try:
            ranks._watcher.start([each.model_dump_json() for each in configs])
        except BaseException:
            ranks.close()
            raise
        return ranks

    def send(self, frame: bytes) -> None:
        """Sends a frame to every follower. Raises RankLost."""
        try:
            for follower in self._followers:
                follower.frames.send(frame)
        except OSError as error:
            raise self.verdict(error) from None

    def receive(self, timeout: float | None = None) -> Word:
        """Waits for the next word of any follower. Raises RankLost, or TimeoutError after so many seconds."""
        self.check()
        try:
            word = self._words.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no rank said anything for {timeout} seconds") from None
        if word is None:
            self._words.put(None)  # for those that call after
            self.check()
            raise CollectiveError("the ranks of the engine were closed")
        return word

    def check(self) -> None:
        """Raises RankLost if a rank is lost. Cheap: it only looks at what the watcher found."""
        if self._lost is not None:
            raise self._lost

    def verdict(self, error: Exception) -> CollectiveError:
        """Returns why the ranks cannot go on, after a collective or a channel failed with `error`.

        The watcher may find the reason somewhat later, so this waits for it.
        """
        self._watcher.lost.wait(VERDICT_SECONDS)
        if self._lost is not None:
            return self._lost
        if isinstance(error, CollectiveError):
            return error
        return CollectiveError(f"the ranks of the engine cannot go on: {error}")

    def join(self, opening: Callable[[], Collective]) -> Collective:
        """Returns the group that `opening` opens, which a lost rank aborts from then on.

        Raises RankLost as soon as a rank is lost, although `opening` then waits for that rank for days: a
        thread calls it, which is left alone. Raises what `opening` raises.
        """
        joined: Future[Collective] = Future()
        self._deserted = True
        threading.Thread(target=_call, args=(opening, joined), name="ranks-join", daemon=True).start()
        either: list[Future[Any]] = [joined, self._loss]
        wait(either, return_when=FIRST_COMPLETED)
        self._deserted = not joined.done()
        self.check()
        group = joined.result()
        self.abort_with(group.abort)
        return group

    def abort_with(self, abort: Callable[[], None]) -> None:
        """Has the watcher call `abort`, a collective's, as soon as a rank is lost."""
        self._aborts.append(abort)
        if self._lost is not None:
            abort()

    def close(self) -> None:
        """Ends the followers: those that do not end by themselves in some seconds are killed. Returns when
        none is left."""
        if not self._closed:
            self._closed = True
            self._watcher.close()
            self._words.put(None)
            for meeting in filter(None, () if self._deserted else self.meetings):
                meeting.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ------------------------------------------------------------------ called by the watcher's thread

    def _said(self, rank: int, text: bytes) -> None:
        self._words.put(Word(rank, text))

    def _lose(self, rank: int, why: str) -> None:
        self._lost = RankLost(rank, why)
        for abort in self._aborts:
            try:
                abort()
            except Exception as error:  # those that wait for words, and to send, learn of the loss
                logger.error("a group of ranks cannot be aborted: %s", error)
        self._loss.set_result(None)
        self._words.put(None)


def _call(opening: Callable[[], Collective], joined: Future[Collective]) -> None:
    try:
        joined.set_result(opening())
    except BaseException as error:
        joined.set_exception(error)


def _meetings(hosts: RankHosts) -> Meetings:
    if not hosts.workers:
        return Meetings(Meeting.on_this_machine())
    own = own_address(urlsplit(hosts.workers[0]).hostname or "")
    return Meetings(Meeting.on_this_machine(), Meeting.at(own))


def _more(config: EngineConfig, meetings: Meetings, worker: str | None) -> list[str]:
    """Returns the arguments of a follower's process beside those that each has."""
    network = [] if meetings.between is None else [f"--network={meetings.between}"]
    place = [] if worker is None else [f"--worker={worker}", f"--key-file={config.rank_key_file}"]
    return network + place


def config_of_rank(config: EngineConfig, rank: int, each: int) -> EngineConfig:
    """Returns `config` with this rank's share of its machine, as if each rank were an engine of its own.

    So it takes its part of the cores, and of the NUMA nodes where the machine has several; and where rank 0
    has the GPU ``cuda:N``, the GPUs from there on are those of one rank each, on every machine. each: how
    many ranks a machine has.
    """
    engine = 0 if config.cpu_engines == 1 else config.cpu_engine
    number = None if engine is None else engine * each + rank % each
    share = None if config.cpu_share is None else config.cpu_share / each
    part: dict[str, object] = {
        "cpu_engines": config.cpu_engines * each,
        "cpu_engine": number,
        "cpu_share": share,
    }
    kind, _, first = config.device.partition(":")
    if kind == "cuda" and first:
        part["device"] = f"cuda:{int(first) + rank % each}"
    return config.model_copy(update=part)
