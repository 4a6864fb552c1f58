"""Hands frames to a follower in a thread of their own, so that one which reads none holds up no other."""

from __future__ import annotations

from contextlib import suppress
from queue import SimpleQueue

from turnout.core.process import start_thread
from turnout.runner.ranks.channel import Sender

__all__ = ["FrameQueue"]


class FrameQueue:
    """Frames of one follower, in order.

    It reads none while it computes a step, and its socket takes only some hundred kilobytes. Rank 0 is at
    most as many steps ahead as a pipeline has stages, so only so many frames wait here.
    """

    def __init__(self, sender: Sender) -> None:
        """Raises OSError where the system has no room for a thread."""
        self._sender = sender
        self._frames: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = start_thread(self._work, "frames")

    def put(self, frame: bytes) -> None:
        """Sends a frame as soon as the follower reads."""
        self._frames.put(frame)

    def end(self) -> None:
        """Closes the channel behind the last frame."""
        self._frames.put(None)

    def close(self) -> None:
        """Returns when nothing is being sent any more; frames that wait are dropped."""
        self._sender.close()
        self.end()
        self._thread.join()

    def _work(self) -> None:
        with suppress(OSError):  # the follower's end is noticed elsewhere
            for frame in iter(self._frames.get, None):
                self._sender.send(frame)
        self._sender.close()
