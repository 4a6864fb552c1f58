"""The server that requests go to, and the body of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job
from turnout.lab.load.address import server_url

__all__ = ["Content", "Target"]

Content = str | list[int] | list[dict[str, str]]
"""A prompt as text or tokens, or the messages of a chat."""


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server, ours or a peer's."""

    url: str
    """Up to, without, ``/v1``."""
    model: str = ""
    endpoint: Literal["completions", "chat"] = "completions"
    prompts: Literal["tokens", "text"] = "tokens"
    ignore_eos: bool = True
    """Ask for outputs of just the workload's length. OpenAI's own servers refuse the parameter."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are added to each request, over those of the same name."""
    api_key: str = ""

    def __post_init__(self) -> None:
        if self.endpoint == "chat" and self.prompts == "tokens":
            raise ConfigError("the chat endpoint takes text, not token ids; give prompts=text, too")

    @classmethod
    def at(cls, address: str, **more: Any) -> Target:
        """The server at an address, as `server_url` reads it."""
        return cls(server_url(address), **more)

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.endpoint == "chat" else "/v1/completions"

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        return {**headers, "Authorization": f"Bearer {self.api_key}"} if self.api_key else headers

    def request(self, job: Job, content: Content) -> bytes:
        """The request's body."""
        fields: dict[str, Any] = {
            "model": self.model,
            "messages" if self.endpoint == "chat" else "prompt": content,
            "max_tokens": job.output,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            fields["ignore_eos"] = True
        if job.client:
            fields["user"] = job.client
        if job.priority:
            fields["priority"] = job.priority
        return msgspec.json.encode({**fields, **self.body})
