"""A follower's side of what rank 0 started: its number, its configuration, its frames."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from turnout.config import EngineConfig
from turnout.core.errors import TurnoutError
from turnout.core.meeting import Meeting
from turnout.core.process import begin_program, exit_with_parent, ignore_stop_signals
from turnout.runner.ranks.channel import Receiver, Sender
from turnout.runner.ranks.hosts import own_address
from turnout.runner.ranks.meetings import Meetings
from turnout.runner.ranks.silence import beat_forever

__all__ = ["FollowerChannel", "follower_channel"]

PR_SET_PDEATHSIG = 1


class FollowerChannel:
    """What a follower knows of its engine, and its channel to rank 0."""

    def __init__(self, given: argparse.Namespace, config: EngineConfig) -> None:
        self.rank: int = given.rank
        self.size: int = given.size
        self.meetings = Meetings(Meeting.parse(given.meeting), _between(given.network))
        self.config = config
        self._frames = Receiver(socket.socket(fileno=given.frames))
        self._words = Sender(socket.socket(fileno=given.words))
        beat_forever(self._words.beat, given.beat)

    def frames(self) -> Iterator[bytes]:
        """Yields frames in the order in which rank 0 sent them, until it closes the channel."""
        return self._frames.messages()

    def say(self, word: bytes) -> None:
        """Sends a word that `Ranks.receive` returns. A word has a byte or more."""
        self._words.send(word)


@contextmanager
def follower_channel() -> Iterator[FollowerChannel]:
    """Reads the command line and standard input, as `Ranks` wrote them; once, at the start of a follower.

    The process ends together with rank 0, however that ends. An error that leaves the block becomes this
    rank's last words, and the process exits with code 1.
    """
    begin_program()
    ignore_stop_signals()
    parser = argparse.ArgumentParser()
    for name in ("rank", "size", "frames", "words"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--meeting", required=True)
    parser.add_argument("--beat", type=float, required=True)
    parser.add_argument("--cores", required=True)
    parser.add_argument("--network", default="")
    given = parser.parse_args()
    _die_with_parent()
    if given.cores:  # rank 0 may keep to its own part of them, and this process to another
        os.sched_setaffinity(0, set(map(int, given.cores.split(","))))
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)  # rank 0 ended before it sent a configuration
    exit_with_parent()
    try:
        yield FollowerChannel(given, EngineConfig.model_validate_json(line))
    except TurnoutError as error:  # its message says it all
        sys.exit(str(error))


def _between(network: str) -> Meeting | None:
    """Returns where ranks of several machines meet, with the address of this one."""
    if not network:
        return None
    meeting = Meeting.parse(network)
    return replace(meeting, own=own_address(meeting.host))


def _die_with_parent() -> None:
    """Has Linux end this process together with rank 0, even while it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
