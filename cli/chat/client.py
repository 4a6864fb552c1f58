"""The chat completions of a server, streamed."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import httpx

from turnout.core.errors import TurnoutError, described

__all__ = ["ChatClient", "ChatError", "Message"]

Message = Mapping[str, str]
"""``{"role": …, "content": …}``."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ChatError(TurnoutError):
    """A server that cannot be reached, or that refused."""


class ChatClient:
    """One server, and what to send with each request besides the messages."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        url = url if "://" in url else f"http://{url}"
        self.url = url.rstrip("/").removesuffix("/v1")
        headers = {b"Authorization": f"Bearer {api_key}".encode()} if api_key else {}
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=httpx.Timeout(10, read=None),  # a long prompt takes its time to the first token
                trust_env=httpx.URL(self.url).host not in LOOPBACK,  # no proxy reaches this machine's own
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise ChatError(f"{url!r} is no address of a server: {error}") from None

    def models(self) -> list[str]:
        """What the server serves. Raises ChatError when there is none."""
        try:
            response = self._http.get("/v1/models")
            self._check(response)
            return [str(model["id"]) for model in response.json()["data"]]
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        except (ValueError, KeyError, TypeError):
            raise ChatError(f"what answers at {self.url} is no OpenAI-compatible server") from None

    def answer(self, messages: Sequence[Message], parameters: Mapping[str, Any]) -> Generator[str]:
        """The answer's text, piece by piece; closing the iterator early makes the server stop."""
        body = _encoded({**parameters, "messages": list(messages), "stream": True})
        kind = {"Content-Type": "application/json"}
        try:
            with self._http.stream("POST", "/v1/chat/completions", content=body, headers=kind) as response:
                if response.is_error:
                    response.read()
                self._check(response)
                yield from _pieces(response.iter_lines())
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _check(self, response: httpx.Response) -> None:
        if response.is_error:
            raise ChatError(f"the server refused ({response.status_code}): {_reason(response)}")

    def _unreachable(self, error: httpx.HTTPError) -> ChatError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol):
            return ChatError(f"no server answers at {self.url} ({error}); start one with: turnout serve")
        return ChatError(f"the connection to {self.url} broke: {described(error)}")


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # input that is not UTF-8, or a temperature that is no number
        raise ChatError(f"this cannot be sent: {error}") from None


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        field, _, data = line.partition(":")
        if field != "data":
            continue
        if data.strip() == "[DONE]":
            return
        yield from _texts(data)


def _texts(data: str) -> list[str]:
    try:
        chunk = json.loads(data)
        if "error" not in chunk:
            return [text for choice in chunk["choices"] if (text := choice["delta"].get("content"))]
        problem = chunk["error"]["message"]
    except (ValueError, KeyError, TypeError):
        raise ChatError(f"the server sent what is no chat completion: {data.strip()[:200]}") from None
    raise ChatError(f"the server broke off: {problem}")


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text.strip()[:200] or response.reason_phrase
