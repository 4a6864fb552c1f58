"""The launching interface: where engines run. A launcher starts them and notices their end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ChannelKeys", "Death", "EngineAddress", "EngineOrder", "LaunchedEngine", "Launcher"]


class EngineOrder(NamedTuple):
    """What a launcher is to start."""

    factory: str
    """What builds the engine, as ``MODULE:FUNCTION``."""
    log_level: str
    """The lowest severity to log."""
    replica: str = ""
    """The engine's name among the replicas, for observers."""
    arm: str = ""
    """The arm of a live test that it serves, for observers."""
    place: str = ""
    """Where it is to run, as ``--replica`` names it; empty: the launcher decides."""
    public: str = ""
    """The public key of a pair that the server made for this engine, for `ChannelKeys`."""
    secret: str = ""
    """The secret key of that pair, which must not leave the server's process."""
    changes: str = ""
    """What rollouts changed of the configuration, for an engine that has its own: as JSON, by field; empty:
    nothing."""
    log_format: str = "text"
    """How the log is written: ``text``, or ``json``, an object a line."""


class ChannelKeys(NamedTuple):
    """CURVE keys of a channel that leaves the machine, each as 40 characters (Z85)."""

    worker: str
    """The public key of the worker, which listens."""
    public: str
    """The public key of the server, which connects."""
    secret: str
    """The secret key of the server."""


class EngineAddress(NamedTuple):
    """Where the channel between a server and an engine is."""

    url: str
    """Without keys, ``ipc://PATH`` or ``tcp://127.0.0.1:PORT``: the server binds it, and the engine, on the
    same machine, connects. With keys, ``tcp://HOST:PORT``, where a `turnout worker` listens."""
    keys: ChannelKeys | None = None
    """None: the channel stays on this machine."""
    changes: str = ""
    """What a `turnout worker` is to change of its engine's configuration: as `EngineOrder.changes`."""
    cpu_kernels: str = ""
    """The kernels of the server's other engines, for a `turnout worker` that would choose its own; empty:
    there are none yet."""


@dataclass(frozen=True)
class Death:
    """The end of an engine's process."""

    how: str
    """As a clause that follows "the process"."""
    fault: bool
    """What ran in the process may be the reason. False: it was ended from outside."""
    begun: tuple[str, ...] | None = None
    """The ids of the requests that the engine had begun with, in order; None: it could not say, and all are
    suspected of a fault."""


class LaunchedEngine(ABC):
    """An engine that a launcher has started. It is never started again: another takes its place."""

    def __init__(self) -> None:
        self.address: Future[EngineAddress] = Future()
        """Set once it is known. A ConfigError as its exception says why the engine cannot be placed."""
        self.death: Future[Death] = Future()
        """Set when the engine's process has ended; never, where the channel alone can tell."""

    @abstractmethod
    def configure(self, config: str) -> None:
        """Tells the engine what to build: an `EngineConfig` as one line of JSON. Called once; does nothing if
        the engine has ended."""

    @abstractmethod
    def kill(self) -> None:
        """Ends the engine's process at once, and frees what it took; does nothing if it has ended, and then
        frees. Called at the end of every engine, perhaps without an event loop, and perhaps twice."""

    def connected(self) -> None:  # noqa: B027
        """Called once the engine has connected: whatever only helped it to may go."""


class Launcher(ABC):
    """Starts engines, each in a process of its own, on this machine or on another."""

    shares_machine: bool = True
    """True: all engines run on this machine, and so share its cores and memory."""

    def expect(self, engines: int) -> None:  # noqa: B027
        """Called before the first engine is launched, with how many the server starts with in all."""

    @abstractmethod
    def launch(self, order: EngineOrder) -> LaunchedEngine:
        """Starts an engine, and returns before it runs: connecting and placing it hold up no request.

        Raises OSError if the system has no room for it now; the server then tries again.
        """

    def close(self) -> None:  # noqa: B027
        """Called when the server ends, after all engines have."""
