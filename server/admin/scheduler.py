"""``/admin/scheduler``: the scheduling policy, which can be changed while the server runs."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import asdict
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import ConfigError, RequestError
from turnout.core.registry.spec import PluginSpec
from turnout.core.types.messages import SchedulerState, SetScheduler, ShowScheduler
from turnout.server.api.context import context_of
from turnout.server.http.admin_client import fetch
from turnout.server.http.bodies.body import read_body
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import ARM, MODEL, operation

__all__ = ["PolicyChange", "set_scheduler", "show_scheduler"]

OptionName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]


class PolicyChange(BaseModel):
    """The body of a request to change the scheduling policy."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    """A scheduler that `turnout plugins` lists, including the server's own plugins and the config file's."""
    options: dict[OptionName, JsonValue] = {}
    """Its options, by name."""

    @field_validator("options", mode="after")
    @classmethod
    def _no_name(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if "name" in value:
            raise ValueError("'name' is not an option; give the policy's name beside the options")
        return value

    def spec(self) -> str:
        """The policy, written as for ``--scheduler``. Raises RequestError for options that it cannot hold."""
        try:
            return str(PluginSpec.from_mapping({**self.options, "name": self.name}))
        except ConfigError as error:
            raise RequestError(str(error)) from None


@operation(answer=SchedulerState, parameters=(MODEL, ARM))
async def show_scheduler(request: Request) -> Response:
    """Shows the scheduling policy."""
    return await _state(request, ShowScheduler())


@operation(body=PolicyChange, answer=SchedulerState, parameters=(MODEL, ARM))
async def set_scheduler(request: Request) -> Response:
    """Replaces the scheduling policy."""
    limit = context_of(request).config.max_body_size
    body = await read_body(request, PolicyChange, limit=limit)
    return await _state(request, SetScheduler(body.spec()))


async def _state(request: Request, command: ShowScheduler | SetScheduler) -> Response:
    with context_of(request).named_arm(request) as arm:
        return JsonResponse(asdict(await fetch(arm.client, command, SchedulerState)))
