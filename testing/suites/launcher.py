"""The conformance suite of launchers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import msgspec
import zmq

from turnout.config import EngineConfig
from turnout.core.interfaces.launcher import Death, EngineAddress, EngineOrder, LaunchedEngine, Launcher
from turnout.core.types.messages import Event, Ready, Shutdown
from turnout.testing.suites.suite import Suite, not_for_it
from turnout.testing.toy.launched import FACTORY

__all__ = ["LauncherSuite"]


class LauncherSuite(Suite[Launcher]):
    """An engine that was launched reports, ends when it is told to, and its end is noticed."""

    kind = "launcher"
    light = True

    seconds: ClassVar[float] = 60.0
    """Time in which an engine without a model starts or ends."""
    place: ClassVar[str] = ""
    """Where the engine is to run, as ``--replica`` names it."""

    def test_an_engine_reports_and_ends_when_told(self) -> None:
        with self._launched() as engine:
            address = engine.address.result(self.seconds)
            if address.keys is not None:
                not_for_it("a worker listens at its address, and answers servers alone")
            engine.configure(EngineConfig().model_dump_json())
            with _listening(address) as socket:
                assert socket.poll(round(self.seconds * 1000)), (
                    f"no engine connected to {address.url} within {self.seconds:g} seconds"
                )
                events = msgspec.msgpack.decode(socket.recv(), type=list[Event])
                assert any(isinstance(event, Ready) for event in events), f"the engine said {events}"
                engine.connected()
                assert not engine.death.done(), "`death` is set though the engine runs"
                socket.send(msgspec.msgpack.encode(Shutdown()))
                death = engine.death.result(self.seconds)
            assert isinstance(death, Death), f"`death` is {death!r}; expected a Death"

    def test_an_engine_that_is_killed_is_missed(self) -> None:
        """Even before it was told what to build; once it is gone, nothing more happens."""
        with self._launched() as engine:
            address = engine.address.result(self.seconds)
            engine.kill()
            if address.keys is None:
                assert not engine.death.result(self.seconds).fault, (
                    "the engine was killed from outside, but `death` says that what ran in it is at fault"
                )
            engine.kill()
            engine.configure(EngineConfig().model_dump_json())

    def test_engines_have_addresses_of_their_own(self) -> None:
        with self._launched() as one, self._launched() as other:
            urls = [engine.address.result(self.seconds).url for engine in (one, other)]
            assert urls[0] != urls[1] or self.place, f"two engines have the address {urls[0]}"

    # -------------------------------------------------------------- details

    @contextmanager
    def _launched(self) -> Iterator[LaunchedEngine]:
        launcher = self.make()
        engine = launcher.launch(EngineOrder(FACTORY, "critical", "0", place=self.place))
        try:
            yield engine
        finally:
            engine.kill()
            launcher.close()


@contextmanager
def _listening(address: EngineAddress) -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.PAIR)
    try:
        socket.bind(address.url)
        yield socket
    finally:
        context.destroy(linger=0)
