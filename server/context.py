"""What every handler needs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property

from starlette.requests import Request

from turnout.core.client import EngineClient
from turnout.core.config import ServerConfig
from turnout.server.errors import ApiError
from turnout.server.kv_watch import KVWatch
from turnout.server.request_metrics import RequestMetrics
from turnout.text.tokenizer import Tokenizer

__all__ = ["Context", "context_of"]


@dataclass(frozen=True)
class Context:
    client: EngineClient
    tokenizer: Tokenizer
    config: ServerConfig
    created: int = field(default_factory=lambda: int(time.time()))

    @cached_property
    def metrics(self) -> RequestMetrics:
        return RequestMetrics(self.model_name, self.client.ready.max_model_len)

    @cached_property
    def kv_watch(self) -> KVWatch:
        return KVWatch(self.client)

    @property
    def model_name(self) -> str:
        return self.config.served_model_name or self.client.ready.model

    def check_model(self, name: str | None) -> None:
        """No name means the only model there is. Raises ApiError 404 for another."""
        if name is not None and name != self.model_name:
            raise ApiError(
                404,
                f"the model {name!r} is not served here; available: {self.model_name!r}",
                param="model",
                code="model_not_found",
            )


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context
