"""Refuses an engine that would go on with requests otherwise than those beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from turnout.core.errors import ConfigError
from turnout.server.engine.agreement import difference
from turnout.server.fleet.replica import FleetReplica

__all__ = ["check_agreement"]


def check_agreement(new: FleetReplica, replicas: Iterable[FleetReplica], expects: Mapping[str, str]) -> None:
    """Raise ConfigError, and end the engine, unless a replica that is ready goes with those that serve.

    `expects`: what the server knows of the identity that engines must have (`Ready.identity`). Engines of
    another generation may differ.
    """
    ready = new.client.ready
    alike = [each for each in replicas if each.started and each.generation is new.generation]
    known = alike[0].client.ready if alike else ready
    found = difference(msgspec.structs.replace(known, identity={**known.identity, **expects}), ready)
    if found is not None:
        where = f" at {new.client.place}" * bool(new.client.place)
        message = f"replica {new.name}{where}: its engine {found}; start all with the same model and options"
        new.client.refuse(message)
        raise ConfigError(message)
