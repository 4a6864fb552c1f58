"""The context that all handlers share: the arms, the configuration, the metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

from starlette.applications import Starlette
from starlette.requests import Request

from turnout.config import ServerConfig
from turnout.server.api.background.background import Background, end_unfinished
from turnout.server.api.text_pool import TextPool
from turnout.server.fleet.arm_header import mark_arm
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.fleet.assignment import session_of
from turnout.server.generation.portions import Portions
from turnout.server.http.access.keys import Keys
from turnout.server.http.errors import ApiError
from turnout.server.http.load import ServerLoad
from turnout.server.http.pieces import PieceThread
from turnout.server.metrics.key_metrics import KeyMetrics
from turnout.server.metrics.kv_stats import KVStats
from turnout.server.metrics.request_metrics import RequestMetrics
from turnout.server.storage.stores import Stores
from turnout.text.prompt.template_process import TemplateProcesses

__all__ = ["Context", "context_of"]


@dataclass(frozen=True)
class Context:
    """One for each server, at ``app.state.context``."""

    arms: Arms
    config: ServerConfig
    load: ServerLoad
    keys: Keys
    stores: Stores = field(default_factory=Stores)
    background: Background = field(default_factory=Background)
    batch_news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a batch has come, or is cancelled."""
    created: int = field(default_factory=lambda: int(time.time()))
    texts: TextPool = field(default_factory=TextPool)
    kv_stats: KVStats = field(default_factory=KVStats)
    templates: TemplateProcesses = field(default_factory=TemplateProcesses)
    rendering: PieceThread = field(default_factory=PieceThread)

    @cached_property
    def metrics(self) -> Mapping[str, RequestMetrics]:
        """By arm."""
        trial, longest = self.arms.trial, self.arms.first.client.ready.max_model_len
        return {
            arm.name: RequestMetrics(
                self.model_name, longest, arrive=partial(trial.arrived, arm.name) if trial else None
            )
            for arm in self.arms.all
        }

    @cached_property
    def portions(self) -> Mapping[str, Portions]:
        """By arm."""
        return {arm.name: Portions(arm.client, partial(_places, arm)) for arm in self.arms.all}

    @cached_property
    def key_metrics(self) -> KeyMetrics:
        return KeyMetrics(self.keys)

    @property
    def model_name(self) -> str:
        """The name that clients give the model. It is the same for all arms: a client asks for no arm."""
        return self.config.served_model_name or self.arms.first.client.ready.model

    @contextmanager
    def assigned_arm(self, request: Request, user: str | None, id: str) -> Iterator[ServedArm]:
        """The arm for a client's request `id`, kept running until the block is left. Raises ApiError."""
        arm = self.arms.assign(session_of(request, user, id))
        mark_arm(request, arm.name)
        with arm.held():
            yield arm

    @contextmanager
    def named_arm(self, request: Request) -> Iterator[ServedArm]:
        """The arm that an admin request names, kept running until the block is left. Raises ApiError."""
        arm = self.arms.named(request.query_params.get("arm"))
        mark_arm(request, arm.name)
        with arm.held():
            yield arm

    def check_model(self, name: str | None, *, tag: str = "") -> None:
        """Raise ApiError 404 unless `name` is the served model's; None stands for the served model.

        tag: what may follow the name, such as ``:latest``.
        """
        if name is not None and name not in (self.model_name, f"{self.model_name}{tag}"):
            raise ApiError(
                404,
                f"the model {name!r} is not served here; available: {self.model_name!r}",
                param="model",
                code="model_not_found",
            )

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncGenerator[None, None]:
        """While the application serves. At the end, what goes on without clients ends, and files close."""
        if self.stores.responses is not None:
            await end_unfinished(self.stores.responses)
        yield
        await self.background.close()
        self.stores.close()


def _places(arm: ServedArm) -> int:
    """Choices of requests with many prompts that an arm's engines have at once; others find room beside."""
    most = arm.config.max_num_seqs
    return (most - most // 8) * len(arm.client.replicas)


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context
