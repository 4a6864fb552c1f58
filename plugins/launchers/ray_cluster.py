"""Engines on a Ray cluster: Ray places them and tells when they are gone; no token goes through it.

::

    placement group   [ bundle 0 ] [ bundle 1 ] …      one for each engine that the server starts with
    actor             [ worker ── engine ]             its channel to the server: TCP, CURVE keys
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from concurrent.futures import Future
from importlib import import_module
from typing import Annotated, Any, Literal

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.launcher import (
    ChannelKeys,
    Death,
    EngineAddress,
    EngineOrder,
    LaunchedEngine,
    Launcher,
)

__all__ = ["RayCluster"]

logger = logging.getLogger(__name__)

HOSTED = "turnout.server.worker.hosted"
"""The module of what an actor runs."""
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
CALLS = 2
"""Calls that an actor serves at a time: `run` lasts as long as the engine."""


class RayCluster(Launcher):
    """Runs each engine in a Ray actor, in a placement group of the engines that the server starts with."""

    shares_machine = False

    def __init__(
        self,
        address: Annotated[
            str, Field(description="Ray's head, as HOST:PORT or `auto`; empty: as `ray.init()` finds it.")
        ] = "",
        strategy: Annotated[Strategy, Field(description="How Ray places engines on nodes.")] = "PACK",
        cpus: Annotated[float, Field(gt=0, description="CPUs of an engine.")] = 1.0,
        gpus: Annotated[float, Field(ge=0, description="GPUs of an engine.")] = 0.0,
        seconds: Annotated[float, Field(gt=0, description="How long Ray may take to find room.")] = 60.0,
    ) -> None:
        self.strategy, self.seconds = strategy, seconds
        self.bundle = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
        self.ray = _ray()
        self._lock = threading.Lock()
        self._engines = 1
        self._group: Any = None
        self._free: list[int] = []
        """Bundles of the group that no engine has."""
        self._connect(address)

    def expect(self, engines: int) -> None:
        self._engines = max(1, engines)

    def launch(self, order: EngineOrder) -> RayEngine:
        return RayEngine(self, order)

    def close(self) -> None:
        if self._group is not None:
            self.ray.util.remove_placement_group(self._group)
        self.ray.shutdown()

    def _connect(self, address: str) -> None:
        try:
            self.ray.init(address=address or None, ignore_reinit_error=True, logging_level="WARNING")
        except (ConnectionError, ValueError, RuntimeError) as error:
            message = f"no Ray cluster can be reached{f' at {address}' * bool(address)}: {error}"
            raise ConfigError(f"{message}; run `ray start --head`, or check --ray-address") from None

    def take(self) -> tuple[Any, int]:
        """A placement group and a free bundle of it. Raises ConfigError where Ray finds no room."""
        with self._lock:
            if self._group is None:
                self._group = self._placed(self._engines)
                self._free = list(range(self._engines))
            if self._free:
                return self._group, self._free.pop(0)
        return self._placed(1), 0

    def give_back(self, group: Any, bundle: int) -> None:
        """Lets another engine have a bundle."""
        with self._lock:
            if group is self._group:
                self._free.append(bundle)
                return
        self.ray.util.remove_placement_group(group)

    def neighbours(self, group: Any, bundle: int) -> int:
        """How many engines of the group are on the node of this one, itself included."""
        nodes = self.ray.util.placement_group_table(group)["bundles_to_node_id"]
        return Counter(nodes.values())[nodes[bundle]]

    def _placed(self, engines: int) -> Any:
        group = self.ray.util.placement_group([self.bundle] * engines, strategy=self.strategy)
        if not group.wait(self.seconds):
            self.ray.util.remove_placement_group(group)
            there = self.ray.available_resources()
            known = ", ".join(f"{there.get(kind, 0):g} {kind}" for kind in self.bundle)
            raise ConfigError(
                f"Ray has found no room for {engines} engines of {_amounts(self.bundle)} each, by "
                f"{self.strategy}, within {self.seconds:g} s; {known} are free in all: ask for less, or add "
                "nodes"
            )
        return group


class RayEngine(LaunchedEngine):
    """An actor. A thread waits for what Ray says of it."""

    def __init__(self, cluster: RayCluster, order: EngineOrder) -> None:
        super().__init__()
        self._cluster, self._order = cluster, order
        self._config: Future[str] = Future()
        self._actor: Any = None
        self._killed = threading.Event()
        threading.Thread(target=self._run, name="ray-engine", daemon=True).start()

    def configure(self, config: str) -> None:
        if not self._config.done():
            self._config.set_result(config)

    def kill(self) -> None:
        self._killed.set()
        self.configure("")
        if self._actor is not None:
            self._cluster.ray.kill(self._actor)

    def _run(self) -> None:
        try:
            group, bundle = self._cluster.take()
        except Exception as error:
            self.address.set_exception(error)
            return
        try:
            self.death.set_result(self._serve(group, bundle))
        finally:
            self._cluster.give_back(group, bundle)

    def _serve(self, group: Any, bundle: int) -> Death:
        """Returns how the engine has ended."""
        ray = self._cluster.ray
        try:
            self._actor = self._started(group, bundle)
            url, public = ray.get(self._actor.address.remote())
            self.address.set_result(
                EngineAddress(url, ChannelKeys(public, self._order.public, self._order.secret))
            )
            config = self._config.result()
            if not self._killed.is_set():
                neighbours = self._cluster.neighbours(group, bundle)
                ray.get(self._actor.run.remote(_shared(config, neighbours, self._cluster.bundle)))
        except Exception as error:
            how = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            death = Death(f"has ended with its Ray actor: {how[0]}", fault=False)
            if not self.address.done():
                self.address.set_exception(ConfigError(f"Ray could not start its actor: {how[0]}"))
            return death
        finally:
            if self._killed.is_set() and self._actor is not None:
                ray.kill(self._actor)
        return Death("has ended", fault=False)

    def _started(self, group: Any, bundle: int) -> Any:
        ray, resources = self._cluster.ray, self._cluster.bundle
        scheduling = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=bundle
        )
        options = ray.remote(EngineActor).options(
            num_cpus=resources["CPU"],
            num_gpus=resources.get("GPU", 0),
            max_concurrency=CALLS,
            max_restarts=0,
            scheduling_strategy=scheduling,
        )
        return options.remote(tuple(self._order._replace(secret="")))  # the secret stays with the server


class EngineActor:
    """Runs in Ray's process: a worker, and below it the engine."""

    def __init__(self, order: tuple[Any, ...]) -> None:
        host = _ray().util.get_node_ip_address()
        self._worker = import_module(HOSTED).HostedWorker(host, EngineOrder(*order))

    def address(self) -> tuple[str, str]:
        """Where the worker listens, and its public key."""
        return self._worker.url, self._worker.public

    def run(self, config: str) -> None:
        """Run the engine; returns when its server has left."""
        self._worker.run(config)


def _shared(config: str, neighbours: int, bundle: dict[str, float]) -> str:
    """The configuration of one of so many engines on a node."""
    given = json.loads(config)
    if neighbours > 1 and bundle.get("GPU", 0) < 1:
        given["memory_share"] /= neighbours
    given["cpu_engines"] = max(given["cpu_engines"], neighbours)
    return json.dumps(given)


def _amounts(bundle: dict[str, float]) -> str:
    return " and ".join(f"{amount:g} {kind}" for kind, amount in bundle.items())


def _ray() -> Any:
    """The library. Raises ConfigError where it is not installed."""
    try:
        ray: Any = import_module("ray")
        import_module("ray.util.scheduling_strategies")
    except ImportError as error:
        raise ConfigError(f"Ray cannot be imported ({error}); pip install 'turnout[ray]'") from None
    return ray
