"""Runs a server, from the port to the exit code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from turnout.config import EngineConfig, ModelConfig, ServerConfig
from turnout.core.errors import ModelError
from turnout.core.logs import LogStyle, start_logging
from turnout.core.process import check_temporary_folder
from turnout.core.registry.registry import Registry
from turnout.plugins.launchers.local import Local
from turnout.server.early_signals import EarlySignals, early_signals
from turnout.server.engine.client import FACTORY, ProcessClient
from turnout.server.fleet.ab_test import ABTest, check_vocabularies
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.fronts.fronts import Fronts, check_api_workers
from turnout.server.fleet.models.cores import with_cores_of_generators
from turnout.server.fleet.models.encoders import without_options_of_decoders
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.fleet.models.memory import known_facts
from turnout.server.fleet.models.models import Models
from turnout.server.fleet.models.plan import ModelPlan
from turnout.server.fleet.places import Places
from turnout.server.fleet.replica import ReplicaOrder
from turnout.server.http.access.keys import check_keys
from turnout.server.http.connections.accepting import check_open_files
from turnout.server.http.connections.listening import Listener, listening
from turnout.server.storage.stores import check_storage
from turnout.text.chat_template import given_template

__all__ = ["StartedModel", "found_folders", "hosted_models", "serve", "start_fleet"]


def serve(
    engine_config: EngineConfig,
    server_config: ServerConfig,
    ab: ABTest | None = None,
    models: Sequence[ModelConfig] = (),
    *,
    factory: str = FACTORY,
) -> int:
    """Serve until Ctrl-C, SIGTERM or SIGHUP; returns the exit code, 0. With `ab`, two engines are compared.

    With `models`, these are served in place of `engine_config`. A single model's processes are started first,
    because their imports and its weights take longest; everything else happens meanwhile. Raises TurnoutError
    when the server cannot start, or when no engine is left.
    """
    start_logging(LogStyle(server_config.log_level, server_config.log_format), process="server")
    # Each text is tokenized in one thread; the library would start one for each core, and fail without them.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    check_keys(server_config)
    check_storage(server_config)
    check_open_files(server_config)
    check_api_workers(server_config, models=bool(models))
    configs = [model.engine for model in models] or [engine_config]
    for template in {config.chat_template for config in [*configs, *([ab.config] if ab else ())]} - {None}:
        given_template(str(template))
    folders = found_folders(models)
    several = with_cores_of_generators(without_options_of_decoders(models, folders), folders) or [
        ModelConfig("", ab.base_config if ab else engine_config, server_config)
    ]
    plan = ModelPlan(several, folders, engine_config, server_config)
    with listening(server_config) as listener, early_signals() as early, ExitStack() as ending:
        started, numbers = [], set[int]()
        for model in several:
            arms, asleep = (ab.base, ab.name) if ab else ("",), model.name not in plan.at_start
            one = StartedModel.of(model, arms, factory, numbers, asleep=asleep)
            ending.callback(one.end)
            started.append(one)
        _serve(listener, started, folders, plan, ab, ending, early)
    return 0


@dataclass(frozen=True)
class StartedModel:
    """A model whose engines' processes have been started."""

    config: ModelConfig
    fleets: Sequence[Fleet]
    """One for each arm."""
    places: Places

    @classmethod
    def of(
        cls,
        model: ModelConfig,
        arms: Sequence[str],
        factory: str,
        numbers: set[int] | None = None,
        *,
        asleep: bool = False,
    ) -> StartedModel:
        """Starts them, unless they are to be asleep. Raises TurnoutError, OSError.

        numbers: those that the engines of all models have, by which they divide NUMA nodes.
        """
        registry = Registry.of(model.engine)
        places = Places.of(registry, model.engine, model.server)
        if isinstance(places.launcher, Local):
            if numbers is not None:
                places.launcher.numbers = numbers
            if places.here:
                check_temporary_folder()
        fleets = [start_fleet(arm, registry, places, model.server, factory, asleep=asleep) for arm in arms]
        return cls(model, fleets, places)

    def end(self) -> None:
        for fleet in self.fleets:
            fleet.kill()
        self.places.close()


def found_folders(models: Sequence[ModelConfig]) -> list[Path]:
    """The folders of several models, before any starts. Raises ModelError naming one that is not there."""
    if not models:
        return []
    from turnout.models.hub.resolve import resolve_model

    folders = []
    for model in models:
        try:
            folders.append(resolve_model(model.engine.model, revision=model.engine.revision))
        except ModelError as error:
            raise ModelError(f"model {model.name!r}: {error}") from None
    return folders


def start_fleet(
    arm: str,
    registry: Registry,
    places: Places,
    server: ServerConfig,
    factory: str = FACTORY,
    *,
    asleep: bool = False,
) -> Fleet:
    """The replicas of an arm, whose processes start now, or when the fleet is woken."""

    def launch(order: ReplicaOrder) -> ProcessClient:
        return ProcessClient(
            factory=factory,
            log=LogStyle(server.log_level, server.log_format),
            restarts=server.engine_restarts,
            arm=arm,
            replica=order.name,
            journal=order.journal,
            launcher=places.launcher_at(order.place.worker),
            place=order.place,
        )

    router = registry.create("router", server.router)
    return Fleet(
        launch,
        places.here,
        router,
        sharing=places.sharing,
        workers=places.addresses,
        asleep=asleep,
        event_interval=server.event_interval,
    )


def _serve(
    listener: Listener,
    started: Sequence[StartedModel],
    folders: Sequence[Path],
    plan: ModelPlan,
    ab: ABTest | None,
    ending: ExitStack,
    early: EarlySignals,
) -> None:
    from turnout.models.hub.resolve import resolve_model

    first = started[0]
    engine = first.config.engine
    # Here rather than in the engine, so that a download is visible and can be ended by Ctrl-C.
    folders = folders or [resolve_model(engine.model, revision=engine.revision)]
    if first.config.name in plan.at_start:
        first.fleets[0].configure(engine)

    import asyncio

    from turnout.server.api.metrics import summed_figures
    from turnout.server.lifecycle import run

    server_config = plan.server
    if ab is not None:
        arms = _compared(first.fleets, folders[0], ab)
        hosted = [HostedModel(arms, server_config.model_name, server_config.model_aliases)]
    else:
        hosted = hosted_models(started, folders, plan)
    fronts = None
    if server_config.api_workers > 1:
        (fleet,), (folder,), name = first.fleets, folders, _name(first.config)
        fronts = Fronts(fleet, listener, folder, name, engine, server_config, summed_figures)
        ending.callback(fronts.kill)
    if not early.came:
        asyncio.run(run(listener, Models(hosted, plan.budget), server_config, fronts))


def hosted_models(
    started: Sequence[StartedModel], folders: Sequence[Path], plan: ModelPlan
) -> list[HostedModel]:
    """The models, each with its one arm."""
    return [
        HostedModel(
            _arms(model, folder),
            _name(model.config),
            model.config.aliases or model.config.server.model_aliases,
            plan.stays[model.config.name],
        )
        for model, folder in zip(started, folders, strict=True)
    ]


def _name(model: ModelConfig) -> str | None:
    """The name that clients give a model; None: the one that its engine will say."""
    return model.name or model.server.model_name or (model.engine.model if model.server.lazy else None)


def _arms(model: StartedModel, folder: Path) -> Arms:
    from turnout.text.tokenizer import load_tokenizer
    from turnout.text.vocabulary import tokenizer_digest

    (fleet,), engine = model.fleets, model.config.engine
    tokenizer = load_tokenizer(folder, engine.chat_template)
    fleet.expects["tokenizer"] = tokenizer_digest(folder)
    return Arms.of_one(fleet, tokenizer, engine, known_facts(folder, engine))


def _compared(fleets: Sequence[Fleet], folder: Path, ab: ABTest) -> Arms:
    """The arms of a live test. Raises ConfigError where their vocabularies differ."""
    from turnout.models.hub.resolve import resolve_model
    from turnout.text.tokenizer import load_tokenizer
    from turnout.text.vocabulary import tokenizer_digest

    base_fleet, other_fleet = fleets
    base_fleet.expects["tokenizer"] = tokenizer_digest(folder)
    other = resolve_model(ab.config.model, revision=ab.config.revision)
    check_vocabularies(ab, folder, other)
    own = load_tokenizer(folder, ab.base_config.chat_template)
    others = load_tokenizer(other, ab.config.chat_template)
    base = ServedArm(base_fleet, own, ab.base, ab.base_config, {}, 1 - ab.share)
    arm = ServedArm(other_fleet, others, ab.name, ab.config, ab.changes, ab.share)
    return Arms([base, arm], ab.trial)
