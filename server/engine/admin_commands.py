"""Carries out admin commands in the engine's process, between two steps."""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.errors import TurnoutError, describe_error
from turnout.core.interfaces.kv import KVCache, PrefixPins
from turnout.core.plugin_faults import plugin_errors
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import (
    AdminCommand,
    KVSnapshot,
    ListPlugins,
    ListPrefixes,
    PinnedPrefix,
    PinnedPrefixes,
    PinPrefix,
    PluginState,
    PluginStates,
    Ready,
    Reply,
    SchedulerState,
    SetScheduler,
    ShowKV,
    UnpinPrefix,
)

__all__ = ["Assembled", "carry_out", "restore"]

logger = logging.getLogger(__name__)

Value = SchedulerState | KVSnapshot | PinnedPrefix | PinnedPrefixes | PluginStates | None


class Assembled(Protocol):
    """What a factory returns; see `turnout.runner.assembly.AssembledEngine`."""

    @property
    def engine(self) -> Engine: ...
    @property
    def ready(self) -> Ready: ...
    @property
    def scheduler(self) -> str: ...
    @property
    def registry(self) -> Registry: ...
    def set_scheduler(self, spec: str) -> str: ...


class _Refused(TurnoutError):
    """A well-formed command that cannot be carried out."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def carry_out(assembled: Assembled, command: AdminCommand) -> Reply:
    """Carry out a command. Errors go into the reply, so that no command harms the requests in service."""
    try:
        return Reply(id=command.id, value=_value(assembled, command))
    except _Refused as refusal:
        return Reply(id=command.id, error=str(refusal), error_kind=refusal.kind)
    except TurnoutError as error:
        return Reply(id=command.id, error=str(error), error_kind="invalid")
    except plugin_errors() as error:
        logger.exception("an admin command failed")
        return Reply(id=command.id, error=describe_error(error), error_kind="internal")


def restore(assembled: Assembled, scheduler: str) -> None:
    """Take back what commands have changed: pins, and the scheduling policy, which is `scheduler` again."""
    pins = assembled.engine.scheduler.kv.prefixes
    for prefix in list(pins.pinned()) if pins is not None else ():
        _prefixes(_pins(assembled), UnpinPrefix(prefix.name))
    if assembled.scheduler != scheduler:
        assembled.set_scheduler(scheduler)


def _value(assembled: Assembled, command: AdminCommand) -> Value:
    if isinstance(command, PinPrefix | UnpinPrefix | ListPrefixes):
        return _prefixes(_pins(assembled), command)
    if isinstance(command, ShowKV):
        return _snapshot(assembled.engine.scheduler.kv, states=command.states)
    if isinstance(command, ListPlugins):
        return PluginStates([PluginState(**entry.summarized()) for entry in assembled.registry.entries()])
    if isinstance(command, SetScheduler):
        spec = assembled.set_scheduler(command.spec)
        logger.info("the scheduling policy is now %s", spec)
    return _state(assembled)


def _state(assembled: Assembled) -> SchedulerState:
    stats = assembled.engine.stats()
    return SchedulerState(
        scheduler=assembled.scheduler,
        policy_faults=stats.policy_faults,
        preemptions=stats.preemptions,
        running=stats.running,
        waiting=stats.waiting,
    )


# ------------------------------------------------------------------ KV memory


def _snapshot(kv: KVCache, *, states: bool) -> KVSnapshot:
    snapshot = kv.snapshot()
    return snapshot if states else msgspec.structs.replace(snapshot, states=[])


def _pins(assembled: Assembled) -> PrefixPins:
    pins = assembled.engine.scheduler.kv.prefixes
    if pins is None:
        backend = assembled.ready.kv
        raise _Refused("unsupported", f"kv backend {backend!r} keeps no prefixes, so none can be pinned")
    return pins


def _prefixes(pins: PrefixPins, command: PinPrefix | UnpinPrefix | ListPrefixes) -> Value:
    if isinstance(command, ListPrefixes):
        return PinnedPrefixes(sorted(pins.pinned(), key=lambda prefix: prefix.name))
    if isinstance(command, PinPrefix):
        return pins.pin(command.name, command.tokens, command.salt)
    if not pins.unpin(command.name):
        raise _Refused("missing", f"no pinned prefix is called {command.name!r}")
    return None
