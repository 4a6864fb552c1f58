"""``POST /start_profile`` and ``/stop_profile``: profiles of the engines, by vLLM's names."""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.messages import ProfileFiles, StartProfile, StopProfile
from turnout.server.api.context import context_of
from turnout.server.http.admin_client import fetch
from turnout.server.http.bodies.body import read_body
from turnout.server.http.errors import ApiError
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import ARM, MODEL, operation

__all__ = ["ProfileReport", "start_profile", "stop_profile"]


class ProfileBody(BaseModel):
    """The body, which may be missing, and says nothing."""

    model_config = ConfigDict(strict=True, extra="forbid")


class ProfileReport(msgspec.Struct):
    """What was written, or nothing yet."""

    files: list[str]
    """Of each replica, on the machine where it runs."""
    notes: list[str]
    """What is lacking, and why."""


@operation(answer=ProfileReport, parameters=(MODEL, ARM))
async def start_profile(request: Request) -> Response:
    """Begins to profile the engines."""
    folder = await _folder(request)
    with context_of(request).named_arm(request) as arm:
        report = await fetch(arm.client, StartProfile(folder), ProfileFiles)
        return JsonResponse(ProfileReport(report.files, report.notes))


@operation(answer=ProfileReport, parameters=(MODEL, ARM))
async def stop_profile(request: Request) -> Response:
    """Ends the profiles, and writes them."""
    await _folder(request)
    with context_of(request).named_arm(request) as arm:
        report = await fetch(arm.client, StopProfile(), ProfileFiles)
        return JsonResponse(ProfileReport(report.files, report.notes))


async def _folder(request: Request) -> str:
    """Where profiles go. Raises ApiError 404 where the server has no place for them."""
    config = context_of(request).config
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        await read_body(request, ProfileBody, limit=config.max_body_size)
    if config.profile_dir is None:
        message = "profiles are not on offer; start the server with --profile-dir DIR"
        raise ApiError(404, message, code="profiling_disabled")
    return config.profile_dir
