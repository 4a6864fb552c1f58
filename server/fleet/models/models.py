"""The models behind one port, of which a request names one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from turnout.core.errors import ConfigError
from turnout.server.fleet.arms import Arms
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.models.budget import Budget
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.fleet.models.keeper import Keeper
from turnout.server.fleet.models.waiting import Entry
from turnout.server.http.errors import ApiError

__all__ = ["Models"]

MOST_SHOWN = 100
"""Characters of a name that is not known, so that a message tells those that are."""
POLL_SECONDS = 0.02
"""How often to look whether all models have finished their requests."""


class Models:
    """Finds models by name. A model whose engines are given up leaves the others as they are."""

    def __init__(self, models: Sequence[HostedModel], budget: Budget | None = None) -> None:
        """budget: which may be loaded at once; None: all."""
        self.all = tuple(models)
        self.keeper = Keeper(self.all, budget or Budget.all())

    @classmethod
    def of_one(cls, arms: Arms, name: str | None = None, aliases: tuple[str, ...] = ()) -> Models:
        """A server's only model; without a name, it has the one that its engine says."""
        return cls([HostedModel(arms, name, aliases)])

    @property
    def alone(self) -> HostedModel | None:
        """The only model; None if there are several."""
        return self.all[0] if len(self.all) == 1 else None

    def named(self, name: str | None, *, tag: str = "") -> HostedModel:
        """The model of this name; None stands for the only one. Raises ApiError.

        tag: what may follow the name, such as ``:latest``.
        """
        if name is None:
            if self.alone is None:
                raise ApiError(
                    400,
                    "several models are served; name one as `model`, or as ?model= where the request has no "
                    f"body: {self._known()}",
                    param="model",
                    code="model_required",
                )
            return self.alone
        for model in self.all:
            if model.is_called(name, tag):
                return model
        raise ApiError(
            404,
            f"the model {name[:MOST_SHOWN]!r} is not served here; available: {self._known()}",
            param="model",
            code="model_not_found",
        )

    def _known(self) -> str:
        return ", ".join(repr(name) for model in self.all for name in (model.name, *model.aliases))

    # -------------------------------------------------------------- all together

    @property
    def fleets(self) -> list[Fleet]:
        return [arm.client for model in self.all for arm in model.arms.all]

    @property
    def idle(self) -> bool:
        return all(model.arms.idle and not model.residence.requests for model in self.all)

    @property
    def closing(self) -> bool:
        """The server is shutting down."""
        return any(model.arms.closing for model in self.all)

    @property
    def failure(self) -> str | None:
        """Why no model is left; None while one is."""
        reasons = [model.arms.failure for model in self.all]
        return None if None in reasons else next(iter(reasons), None)

    async def gone(self) -> None:
        """Load and unload models as requests ask for them; return when none is left that could serve."""
        await self.keeper.run()

    async def entry(self, model: HostedModel) -> Entry:
        """Wait until a model is loaded. Raises ApiError, TurnoutError."""
        waiting = model.residence.requests.enter()
        self.keeper.tell()
        return await waiting

    def refuse(self, reason: str) -> None:
        """End all requests with `reason`, and take no more."""
        self.keeper.refuse(reason)
        for fleet in self.fleets:
            fleet.refuse(reason)

    async def finish(self, seconds: float) -> None:
        """Take no more requests; return when the last one has ended, or after `seconds`."""
        for model in self.all:
            model.arms.closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.idle:
                    await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        """Stop all engines."""
        await self.keeper.close()
        await asyncio.gather(*(model.arms.close() for model in self.all))

    # -------------------------------------------------------------- commands

    def load(self, model: HostedModel) -> None:
        """Have a model loaded as soon as there is room. Does nothing if it is, or is being loaded."""
        residence = model.residence
        given_up = model.loaded and model.arms.failure is not None
        residence.wanted_by_admin = given_up or residence.state not in ("loading", "loaded")
        residence.unloaded_by_admin = given_up
        if residence.draining and not given_up:
            residence.reopen()
        self.keeper.tell()

    def unload(self, model: HostedModel) -> None:
        """End a model's engines after their last request. Raises ApiError for one that has to stay."""
        residence = model.residence
        if model.arms.trial is not None:
            raise ApiError(409, f"{model.name!r} has a live test; stop the server instead", code="model_busy")
        if residence.pinned:
            raise ApiError(409, f"{model.name!r} is pinned; unpin it first", code="model_pinned")
        if any(replica.client.place for arm in model.arms.all for replica in arm.client.replicas):
            raise ApiError(
                409, f"{model.name!r} has engines of workers; stop those instead", code="model_busy"
            )
        if residence.state == "loading":
            raise ApiError(409, f"{model.name!r} is being loaded; unload it then", code="model_busy")
        if residence.changing:
            raise ApiError(
                409, f"{model.name!r} has a rollout or replicas that come or go; wait", code="model_busy"
            )
        residence.wanted_by_admin = False
        residence.unloaded_by_admin = residence.state == "loaded"
        self.keeper.tell()

    def pin(self, model: HostedModel, *, pinned: bool) -> None:
        """Have a model stay once it is loaded, or no longer. Raises ApiError where others never had room."""
        before = model.residence.stay
        model.residence.pin(pinned)
        try:
            self.keeper.budget.check({each.name: each.residence.stay for each in self.all})
        except ConfigError as error:
            model.residence.stay = before
            raise ApiError(409, f"{model.name!r} is not pinned: {error}", code="model_unpinned") from None
        if pinned and model.residence.draining and not model.residence.unloaded_by_admin:
            model.residence.reopen()  # another is to make the room that it was to make
        self.keeper.tell()
