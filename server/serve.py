"""Runs a server, from the port to the exit code."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from turnout.config import EngineConfig, ServerConfig
from turnout.core.registry.registry import Registry
from turnout.server.engine.client import FACTORY, ProcessClient
from turnout.server.fleet.ab_test import ABTest, check_vocabularies
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.places import Places
from turnout.server.fleet.replica import ReplicaOrder
from turnout.server.http.access.keys import check_keys
from turnout.server.http.connections.listening import Listener, listening
from turnout.server.http.request_log import LOG_FORMAT, mark_record
from turnout.server.storage.stores import check_storage
from turnout.text.chat_template import given_template

__all__ = ["serve", "start_fleet"]


def serve(
    engine_config: EngineConfig,
    server_config: ServerConfig,
    ab: ABTest | None = None,
    *,
    factory: str = FACTORY,
) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code, 0. With `ab`, two engines are compared.

    The engines' processes are started first, because their imports and the model's weights take longest;
    everything else happens meanwhile. Raises TurnoutError when the server cannot start, or when no engine is
    left.
    """
    _log(server_config.log_level)
    check_keys(server_config)
    check_storage(server_config)
    configs = [ab.base_config, ab.config] if ab else [engine_config]
    for template in {config.chat_template for config in configs} - {None}:
        given_template(str(template))
    with listening(server_config) as listener, _terminable():
        registry = Registry.of(engine_config)
        places = Places.of(registry, engine_config, server_config)
        fleets = [
            start_fleet(arm, registry, places, server_config, factory)
            for arm in ((ab.base, ab.name) if ab else ("",))
        ]
        try:
            _serve(listener, fleets, ab.base_config if ab else engine_config, server_config, ab)
        except KeyboardInterrupt:
            pass  # before the event loop handles signals
        finally:
            for fleet in fleets:
                fleet.kill()
            places.launcher.close()
    return 0


def start_fleet(
    arm: str, registry: Registry, places: Places, server: ServerConfig, factory: str = FACTORY
) -> Fleet:
    """The replicas of an arm, whose processes start now."""

    def launch(order: ReplicaOrder) -> ProcessClient:
        return ProcessClient(
            factory=factory,
            log_level=server.log_level,
            restarts=server.engine_restarts,
            arm=arm,
            replica=order.name,
            journal=order.journal,
            launcher=places.launcher_at(order.place.worker),
            place=order.place,
        )

    router = registry.create("router", server.router)
    return Fleet(launch, places.here, router, sharing=places.sharing, workers=places.addresses)


def _serve(
    listener: Listener,
    fleets: Sequence[Fleet],
    engine_config: EngineConfig,
    server_config: ServerConfig,
    ab: ABTest | None,
) -> None:
    from turnout.models.hub.resolve import resolve_model

    # Here rather than in the engine, so that a download is visible and can be ended by Ctrl-C.
    folder = resolve_model(engine_config.model, revision=engine_config.revision)
    fleets[0].configure(engine_config)

    import asyncio

    from turnout.server.lifecycle import run
    from turnout.text.tokenizer import load_tokenizer
    from turnout.text.vocabulary import tokenizer_digest

    tokenizer = load_tokenizer(folder, engine_config.chat_template)
    fleets[0].expects["tokenizer"] = tokenizer_digest(folder)
    arms = Arms.of_one(fleets[0], tokenizer, engine_config)
    if ab is not None:
        other = resolve_model(ab.config.model, revision=ab.config.revision)
        check_vocabularies(ab, folder, other)
        base = ServedArm(fleets[0], tokenizer, ab.base, ab.base_config, {}, 1 - ab.share)
        others = load_tokenizer(other, ab.config.chat_template)
        arm = ServedArm(fleets[1], others, ab.name, ab.config, ab.changes, ab.share)
        arms = Arms([base, arm], ab.trial)
    asyncio.run(run(listener, fleets, arms, server_config))


def _log(level: str) -> None:
    """Write the log to standard error; lines about a request name it."""
    handler = logging.StreamHandler()
    handler.addFilter(mark_record)
    logging.basicConfig(level=level.upper(), format=LOG_FORMAT, handlers=[handler])


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end this process as Ctrl-C does, until the event loop handles both."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
