"""The models behind one port, of which a request names one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from turnout.server.fleet.arms import Arms
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.http.errors import ApiError

__all__ = ["Models"]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.02
"""How often to look whether all models have finished their requests."""


class Models:
    """Finds models by name. A model whose engines are given up leaves the others as they are."""

    def __init__(self, models: Sequence[HostedModel]) -> None:
        self.all = tuple(models)

    @classmethod
    def of_one(cls, arms: Arms, name: str | None = None) -> Models:
        """A server's only model; without a name, it has the one that its engine says."""
        return cls([HostedModel(arms, name)])

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
            f"the model {name!r} is not served here; available: {self._known()}",
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
        return all(model.arms.idle for model in self.all)

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
        """Return when no engine is left."""
        await asyncio.gather(*map(self._watch, self.all))

    async def _watch(self, model: HostedModel) -> None:
        await model.arms.gone()
        if self.alone is None:
            logger.error("model %s has failed: %s", model.name, model.arms.failure)

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
        await asyncio.gather(*(model.arms.close() for model in self.all))
