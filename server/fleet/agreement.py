"""Refuses an engine that would go on with requests otherwise than those beside it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import msgspec

from turnout.core.errors import ConfigError
from turnout.server.engine.agreement import difference
from turnout.server.fleet.replica import FleetReplica

__all__ = ["check_agreement"]

logger = logging.getLogger(__name__)


def check_agreement(new: FleetReplica, replicas: Iterable[FleetReplica], expects: Mapping[str, str]) -> None:
    """Raise ConfigError, and refuse the engine, unless a replica that is ready goes with those that serve.

    One that computes otherwise is warned of: `FleetReplica.same_tokens` keeps streams from it.

    `expects`: what the server knows of the identity that engines must have (`Ready.identity`). Engines of
    another generation may differ.
    """
    ready = new.client.ready
    alike = [each for each in replicas if each.started and each.generation is new.generation]
    known = alike[0].client.ready if alike else ready
    found = difference(msgspec.structs.replace(known, identity={**known.identity, **expects}), ready)
    where = f" at {new.client.place}" * bool(new.client.place)
    if found is not None:
        message = f"replica {new.name}{where}: its engine {found}; start all with the same model and options"
        new.client.refuse(message)
        raise ConfigError(message)
    if not all(map(new.same_tokens, alike)):
        logger.warning(
            "replica %s%s: its CPU, device or kernels are others than those of replica %s, so it gives other "
            "bits; streams of one do not go on in the other",
            *(new.name, where, next(each.name for each in alike if not new.same_tokens(each))),
        )
