"""The context that all handlers share: the arms, the configuration, the metrics."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from starlette.applications import Starlette
from starlette.requests import Request

from turnout.config import ServerConfig
from turnout.server.api.background.background import Background, end_unfinished
from turnout.server.api.background.room import Room, Size
from turnout.server.api.text_pool import TextPool
from turnout.server.fleet.arm_header import mark_arm
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.fleet.assignment import session_of
from turnout.server.fleet.fronts.fronts import Fronts
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.fleet.models.models import Models
from turnout.server.fleet.models.waiting import Entry, note_entry
from turnout.server.generation.portions import Portions
from turnout.server.http.access.keys import Keys
from turnout.server.http.disconnect import while_connected
from turnout.server.http.early_events import with_comments
from turnout.server.http.errors import ApiError
from turnout.server.http.load import ServerLoad
from turnout.server.http.pieces import PieceThread
from turnout.server.http.records.record import Write, note_model
from turnout.server.metrics.key_metrics import KeyMetrics
from turnout.server.metrics.kv_stats import KVStats
from turnout.server.metrics.request_metrics import RequestMetrics
from turnout.server.storage.stores import Stores
from turnout.text.prompt.template_process import TemplateProcesses

__all__ = ["Context", "context_of"]


@dataclass(frozen=True)
class Context:
    """The server's, at ``app.state.context``; `of` gives one for each model."""

    models: Models
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
    writers: Sequence[Write] = ()
    """Told of each request that has ended."""
    fronts: Fronts | None = None
    """The processes that take clients' connections; None: this one does."""
    model: HostedModel | None = None
    """The model that the request names."""
    _by_model: dict[HostedModel, Context] = field(default_factory=dict)

    def of(self, name: str | None, *, tag: str = "") -> Context:
        """The context of the model that a request names. Raises ApiError 404; 400 where a name is missing.

        tag: what may follow the name, such as ``:latest``.
        """
        return self.about(self.models.named(name, tag=tag))

    def about(self, model: HostedModel) -> Context:
        """The context of a model."""
        if (found := self._by_model.get(model)) is None:
            found = self._by_model[model] = replace(self, model=model)
        return found

    @property
    def each(self) -> list[Context]:
        """The contexts of all models."""
        return [self.about(model) for model in self.models.all]

    @property
    def served(self) -> HostedModel:
        """The model that the request names, or the only one. Raises ApiError where there are several."""
        return self.models.named(None) if self.model is None else self.model

    @property
    def arms(self) -> Arms:
        """Of the model. Raises ApiError as `served` does."""
        return self.served.arms

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
        workers = self.config.api_workers
        return {arm.name: Portions(arm.client, partial(_portion, arm, workers)) for arm in self.arms.all}

    @cached_property
    def rooms(self) -> Mapping[str, Room]:
        """What responses in the background have of the engines, by arm."""
        return {arm.name: Room(arm.client, partial(_room, arm)) for arm in self.arms.all}

    @cached_property
    def key_metrics(self) -> KeyMetrics:
        return KeyMetrics(self.keys)

    @property
    def model_name(self) -> str:
        """The name that clients give the model."""
        return self.served.name

    @asynccontextmanager
    async def assigned_arm(
        self, request: Request, user: str | None, id: str, *, stream: bool = False
    ) -> AsyncGenerator[ServedArm, None]:
        """The arm for a client's request `id`, kept running until the block is left.

        Waits until the model is loaded, and meanwhile writes comments into what will be a stream of events.
        Raises ApiError.
        """
        with await self._entry(request, stream=stream) as entry:
            arm = self.arms.assign(session_of(request, user, id))
            mark_arm(request, arm.name)
            note_model(request.scope, self.model_name)
            note_entry(request, entry)
            with arm.held():
                yield arm

    async def _entry(self, request: Request, *, stream: bool) -> Entry:
        model = self.served
        model.arms.check_open()
        if (entry := model.residence.enter_now()) is not None:
            return entry
        entering = self.models.entry(model)
        if stream:
            entering = with_comments(request, entering, lambda: _waits_for(model))
        return await while_connected(request.receive, entering)

    async def ensure_loaded(self, request: Request) -> None:
        """Return when the model is loaded. Raises ApiError."""
        (await self._entry(request, stream=False)).begun()

    def keep_loaded(self, seconds: float | None) -> None:
        """Have a model that is loaded on demand stay so long once it is idle; None: as configured."""
        residence = self.served.residence
        if residence.stay.on_demand and seconds is not None:
            residence.keep = None if seconds == math.inf else seconds
            self.models.keeper.tell()

    async def described(self, request: Request) -> ServedArm:
        """The model's first arm, whose engine has told what the model is; it may be unloaded since.

        Raises ApiError.
        """
        arm = self.arms.first
        if not arm.client.described:
            await self.ensure_loaded(request)
        return arm

    @contextmanager
    def named_arm(self, request: Request, *, changes: bool = False) -> Iterator[ServedArm]:
        """The arm that an admin request names, kept running until the block is left.

        changes: it is to get or lose engines, for which a model that is to be unloaded would wait, and its
        requests with it. Raises ApiError, 409 where the model is not loaded, or not to be changed so now.
        """
        model = self.of(request.query_params.get("model")).served
        if not model.loaded:
            raise ApiError(
                409,
                f"the model {model.name!r} is {model.state}, and has no engine; POST /admin/models loads it",
                param="model",
                code="model_not_loaded",
            )
        if changes and model.residence.leaving:
            raise ApiError(
                409,
                f"the model {model.name!r} is being unloaded; keep it by POST /admin/models (load) first",
                param="model",
                code="model_busy",
            )
        arm = model.arms.named(request.query_params.get("arm"))
        mark_arm(request, arm.name)
        with arm.held():
            yield arm

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncGenerator[None, None]:
        """While the application serves. At the end, what goes on without clients ends, and files close."""
        if self.stores.responses is not None:
            await end_unfinished(self.stores.responses)
        yield
        await self.background.close()
        self.stores.close()


def _waits_for(model: HostedModel) -> str:
    """What a client that waits for a model is told."""
    residence = model.residence
    if residence.progress is None:
        return f"waiting for room to load {model.name}"
    return f"loading {model.name}, {residence.progress:.0%}"


def _places(arm: ServedArm) -> int:
    """Choices of requests with many prompts that an arm's engines have at once; others find room beside."""
    most = arm.config.max_num_seqs
    return (most - most // 8) * len(arm.client.replicas)


def _portion(arm: ServedArm, workers: int) -> int:
    """As `_places`: what each of several processes may have of them."""
    return _places(arm) if workers == 1 else max(1, _places(arm) // workers)


def _room(arm: ServedArm) -> Size:
    """What responses in the background have of an arm's engines at once; others find room beside."""
    stats, ready = arm.client.stats, arm.client.ready
    known = None if stats is None else stats.kv_capacity or math.inf
    tokens = ready.max_model_len if known is None else known
    return Size(_places(arm), tokens - tokens / 8)


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context
