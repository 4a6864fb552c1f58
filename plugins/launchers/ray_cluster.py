"""Engines on a Ray cluster: Ray places them and tells when they are gone; no token goes through it.

::

    placement group   [ bundle 0 ] [ bundle 1 ] …      one for each rank of the first engines
    actor             [ worker ── engine ]             its channel to the server: TCP, CURVE keys
    further actors    [ host of ranks ── followers ]   where an engine's ranks are on several nodes
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
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

__all__ = ["RayCluster", "machines_of", "shared_out"]

logger = logging.getLogger(__name__)

HOSTED = "turnout.server.worker.hosted"
"""The module of what an actor runs."""
HOSTED_RANKS = "turnout.server.worker.ranks.hosted"
"""The module of what takes ranks in another actor."""
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
        self._room = threading.Condition()
        self._engines = 1
        self._group: Any = None
        self._free: list[tuple[int, ...]] = []
        """Bundles of the group that no engine has, those of an engine together."""
        self.ending: set[RayEngine] = set()
        """Engines that have been killed and have their bundles yet."""
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

    def take(self, ranks: int) -> tuple[Any, tuple[int, ...]]:
        """A placement group and free bundles of it, one a rank. Raises ConfigError where there is no room.

        Waits for the bundles of an engine that is ending: Ray may have no room for both.
        """

        def fits() -> bool:
            return bool(self._free) and len(self._free[0]) == ranks

        with self._room:
            if self._group is None:
                self._group = self._placed(self._engines, ranks)
                self._free = shared_out(self.nodes(self._group), ranks)
            self._room.wait_for(lambda: fits() or not self.ending, self.seconds)
            if fits():
                return self._group, self._free.pop(0)
        return self._placed(1, ranks), tuple(range(ranks))

    def give_back(self, engine: RayEngine, group: Any, bundles: tuple[int, ...]) -> None:
        """Lets another engine have bundles."""
        with self._room:
            self.ending.discard(engine)
            self._room.notify_all()
            if group is self._group:
                self._free.append(bundles)
                return
        self.ray.util.remove_placement_group(group)

    def nodes(self, group: Any) -> Mapping[int, str]:
        """The node of each bundle of a group."""
        found: Mapping[int, str] = self.ray.util.placement_group_table(group)["bundles_to_node_id"]
        return found

    def _placed(self, engines: int, ranks: int) -> Any:
        group = self.ray.util.placement_group([self.bundle] * (engines * ranks), strategy=self.strategy)
        if not group.wait(self.seconds):
            self.ray.util.remove_placement_group(group)
            there = self.ray.available_resources()
            known = ", ".join(f"{there.get(kind, 0):g} {kind}" for kind in self.bundle)
            what = f"{engines} engines" + (f" of {ranks} ranks" if ranks > 1 else "")
            raise ConfigError(
                f"Ray has found no room for {what} of {_amounts(self.bundle)} each, by "
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
        self._holds = False
        """It has bundles."""
        self._actor: Any = None
        self._hosts: list[Any] = []
        """Actors that take ranks on other nodes."""
        self._killed = threading.Event()
        threading.Thread(target=self._run, name="ray-engine", daemon=True).start()

    def configure(self, config: str) -> None:
        if not self._config.done():
            self._config.set_result(config)

    def kill(self) -> None:
        self._killed.set()
        if self._holds:
            self._cluster.ending.add(self)
        self.configure("")
        if self._actor is not None:
            self._cluster.ray.kill(self._actor)

    def _run(self) -> None:
        config = self._config.result()
        if self._killed.is_set():
            self.death.set_result(Death("has ended", fault=False))
            return
        try:
            group, bundles = self._cluster.take(_ranks(config))
        except Exception as error:
            self.address.set_exception(error)
            return
        self._holds = True
        try:
            death = self._serve(group, bundles, config)
        finally:
            for actor in self._hosts:
                self._cluster.ray.kill(actor)
            self._holds = False
            self._cluster.give_back(self, group, bundles)
        self.death.set_result(death)  # at last: the engine that takes its place needs the bundles

    def _serve(self, group: Any, bundles: tuple[int, ...], config: str) -> Death:
        """Returns how the engine has ended."""
        ray = self._cluster.ray
        try:
            self._actor = self._started(EngineActor, group, bundles[0])
            url, public = ray.get(self._actor.address.remote())
            self.address.set_result(
                EngineAddress(url, ChannelKeys(public, self._order.public, self._order.secret))
            )
            nodes = self._cluster.nodes(group)
            machines = machines_of(bundles, nodes)
            keys = dict(self._host(group, machine[0], public) for machine in machines[1:])
            if not self._killed.is_set():
                neighbours = Counter(nodes.values())[nodes[bundles[0]]] // len(machines[0])
                shared = _shared(config, neighbours, self._cluster.bundle, keys)
                ray.get(self._actor.run.remote(shared, keys))
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

    def _host(self, group: Any, bundle: int, public: str) -> tuple[str, str]:
        """Starts what takes ranks on another node, for the actor of rank 0; returns its address and key."""
        actor = self._started(RanksActor, group, bundle, public)
        self._hosts.append(actor)
        found: tuple[str, str] = self._cluster.ray.get(actor.address.remote())
        actor.run.remote()
        return found

    def _started(self, kind: type, group: Any, bundle: int, public: str | None = None) -> Any:
        """public: the key that it lets in; None: the server's."""
        ray, resources = self._cluster.ray, self._cluster.bundle
        scheduling = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=bundle
        )
        order = self._order._replace(secret="")  # the secret stays with the server
        options = ray.remote(kind).options(
            num_cpus=resources["CPU"],
            num_gpus=resources.get("GPU", 0),
            max_concurrency=CALLS,
            max_restarts=0,
            scheduling_strategy=scheduling,
        )
        return options.remote(tuple(order if public is None else order._replace(public=public)))


class EngineActor:
    """Runs in Ray's process: a worker, and below it the engine."""

    def __init__(self, order: tuple[Any, ...]) -> None:
        host = _ray().util.get_node_ip_address()
        self._worker = import_module(HOSTED).HostedWorker(host, EngineOrder(*order))

    def address(self) -> tuple[str, str]:
        """Where the worker listens, and its public key."""
        return self._worker.url, self._worker.public

    def run(self, config: str, hosts: dict[str, str]) -> None:
        """Run the engine; returns when its server has left. hosts: keys of what takes ranks elsewhere."""
        self._worker.run(config, hosts)


class RanksActor:
    """Runs in Ray's process: it takes ranks of the engine of another actor, and below it are followers."""

    def __init__(self, order: tuple[Any, ...]) -> None:
        host = _ray().util.get_node_ip_address()
        self._host = import_module(HOSTED_RANKS).HostedRanks(host, EngineOrder(*order))

    def address(self) -> tuple[str, str]:
        """Where it listens, and its public key."""
        return self._host.url, self._host.public

    def run(self) -> None:
        """Take ranks until the actor is killed."""
        self._host.run()


def shared_out(nodes: Mapping[int, str], ranks: int) -> list[tuple[int, ...]]:
    """Gives each engine bundles for its ranks, neighbours on one node as far as that goes."""
    by_node = sorted(nodes, key=lambda bundle: (nodes[bundle], bundle)) if ranks > 1 else sorted(nodes)
    return [tuple(by_node[at : at + ranks]) for at in range(0, len(by_node), ranks)]


def machines_of(bundles: Sequence[int], nodes: Mapping[int, str]) -> list[list[int]]:
    """Returns an engine's bundles node by node, where nodes have as many each; else each alone, as if on a
    node of its own: ranks are placed evenly."""
    found: dict[str, list[int]] = {}
    for bundle in bundles:
        found.setdefault(nodes[bundle], []).append(bundle)
    machines = list(found.values())
    return machines if len({len(each) for each in machines}) == 1 else [[bundle] for bundle in bundles]


def _ranks(config: str) -> int:
    given = json.loads(config)
    return int(given.get("tensor_parallel_size", 1)) * int(given.get("pipeline_parallel_size", 1))


def _shared(config: str, neighbours: int, bundle: dict[str, float], hosts: Mapping[str, str]) -> str:
    """The configuration of one of so many engines on a node. hosts: by address, what takes its ranks
    elsewhere."""
    given = json.loads(config)
    if hosts:
        given["rank_workers"] = ",".join(hosts)
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
