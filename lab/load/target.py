"""The server that requests go to, and the body of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job
from turnout.lab.load.address import server_url
from turnout.lab.load.authorization import authorization

__all__ = ["Content", "Target"]

Content = str | list[int] | list[dict[str, str]] | list[str] | list[list[int]]
"""A prompt as text or tokens, the messages of a chat, or several texts that are pooled."""
Endpoint = Literal["completions", "chat", "embeddings", "rerank"]
PATHS: Mapping[Endpoint, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
}
TEXT_ONLY = ("chat", "rerank")
"""Endpoints that take no token ids."""


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server, ours or a peer's."""

    url: str
    """Up to, without, ``/v1``."""
    model: str = ""
    endpoint: Endpoint = "completions"
    prompts: Literal["tokens", "text"] = "tokens"
    ignore_eos: bool = True
    """Ask for outputs of just the workload's length. OpenAI's own servers refuse the parameter."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are added to each request, over those of the same name."""
    api_key: str = ""
    texts: int = 1
    """Texts of a request for embeddings, or documents of one to rank."""

    def __post_init__(self) -> None:
        if self.endpoint in TEXT_ONLY and self.prompts == "tokens":
            raise ConfigError(
                f"the {self.endpoint} endpoint takes text, not token ids; give --prompts text, too"
            )
        if self.texts > 1 and not self.pools:
            raise ConfigError("texts are for the endpoints embeddings and rerank")
        authorization(self.api_key)  # which refuses a key before the first request

    @classmethod
    def at(cls, address: str, **more: Any) -> Target:
        """The server at an address, as `server_url` reads it."""
        return cls(server_url(address), **more)

    @property
    def path(self) -> str:
        return PATHS[self.endpoint]

    @property
    def pools(self) -> bool:
        """Whether the endpoint generates nothing."""
        return self.endpoint in ("embeddings", "rerank")

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", **authorization(self.api_key)}

    def request(self, job: Job, content: Content) -> bytes:
        """The request's body."""
        fields = {
            "model": self.model,
            **(self._pooled(content) if self.pools else self._generated(job, content)),
        }
        if job.client:
            fields["user"] = job.client
        if job.priority:
            fields["priority"] = job.priority
        return msgspec.json.encode({**fields, **self.body})

    def _pooled(self, content: Content) -> dict[str, Any]:
        """Of a ranking, the first text is the query."""
        if self.endpoint == "rerank":
            return {"query": content[0], "documents": content[1:], "return_documents": False}
        return {"input": content, "encoding_format": "base64"}

    def _generated(self, job: Job, content: Content) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "messages" if self.endpoint == "chat" else "prompt": content,
            "max_tokens": job.output,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            fields["ignore_eos"] = True
        deadlines = {"deadline_ms": job.deadline_ms, "ttft_deadline_ms": job.ttft_deadline_ms}
        return fields | {name: value for name, value in deadlines.items() if value is not None}
