"""Turnout as an ingress of Ray Serve, for clusters that run it already::

    serve run deploy.ray_serve:turnout model=turnout-tiny max_num_seqs=64 replicas=4

Each replica of Ray Serve is a server with engines of its own. `replicas` is the most that there may be: Ray
starts another one where more requests are in service than an engine has slots, so that some wait.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import EngineGone
from turnout.core.registry.registry import Registry
from turnout.models.hub.resolve import resolve_model
from turnout.server.app import create_app
from turnout.server.fleet.arms import Arms
from turnout.server.fleet.models.models import Models
from turnout.server.fleet.places import Places
from turnout.server.serve import start_fleet
from turnout.text.tokenizer import load_tokenizer

__all__ = ["turnout"]


class Ingress:
    """An ASGI application whose engines start with it: Turnout's own, once they are ready."""

    def __init__(self, engine: EngineConfig) -> None:
        # Ray Serve checks who may connect, and stands between clients and the server.
        self._engine, self._server = engine, ServerConfig(allowed_hosts=("*",))
        self._app: Any = None
        self._arms: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        await self._start()

        async def tell(message: Any) -> None:
            if message["type"] != "lifespan.startup.complete":
                await self._arms.close()
            await send(message)

        await self._app(scope, receive, tell)

    def check(self) -> None:
        """Raises EngineGone once no engine is left."""
        if (failure := self._arms.failure) is not None:
            raise EngineGone(failure)

    async def _start(self) -> None:
        registry = Registry.of(self._engine)
        fleet = start_fleet("", registry, Places.of(registry, self._engine, self._server), self._server)
        folder = await asyncio.to_thread(resolve_model, self._engine.model, revision=self._engine.revision)
        fleet.configure(self._engine)
        await fleet.start()
        tokenizer = load_tokenizer(folder, self._engine.chat_template)
        self._arms = Arms.of_one(fleet, tokenizer, self._engine)
        self._app = create_app(Models.of_one(self._arms), self._server)


def turnout(options: dict[str, str]) -> serve.Application:
    """The application of these options: those of engines, and `replicas`, `cpus` and `gpus` of each."""
    options = dict(options)
    most, cpus, gpus = (
        float(options.pop(name, 1 - (name == "gpus"))) for name in ("replicas", "cpus", "gpus")
    )
    engine = EngineConfig(**options)  # type: ignore[arg-type]

    @serve.deployment(
        name="turnout",
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        max_ongoing_requests=engine.max_num_seqs + engine.max_waiting,
        autoscaling_config={
            "min_replicas": 1,
            "max_replicas": int(most),
            "target_ongoing_requests": engine.max_num_seqs,
        },
        graceful_shutdown_timeout_s=30,
    )
    @serve.ingress(Ingress(engine))
    class Turnout:
        """Its requests go to the application above."""

        async def check_health(self) -> None:
            """Called by Ray now and then, which replaces a replica where this raises."""
            self.app.check()  # type: ignore[attr-defined]  # of Ray's own class, which this becomes a part of

    return Turnout.bind()
