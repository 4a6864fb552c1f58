"""A client of a server's chat completions, which are streamed."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import msgspec

from turnout.cli.chat.answer import Piece
from turnout.core.errors import ConfigError, TurnoutError, describe_error
from turnout.lab.load.address import connector, http_url, is_local, server_url
from turnout.lab.load.authorization import authorization
from turnout.lab.load.bounded_read import read_beginning
from turnout.lab.load.event_reader import MOST_CHARACTERS, EventReader, error_message, error_text

__all__ = ["ChatClient", "ChatError", "ContextExceeded", "Message"]

Message = Mapping[str, Any]
"""``{"role": …, "content": …}``."""

CONNECT_SECONDS = 10
"""The timeout for connecting. Then there is none: the first token of a long prompt takes a while."""
CONTEXT = (b"context length", b"context_length", b"context size", b"context_size")
"""What servers name in the refusal of a conversation that their model's context does not hold."""
RESET = (errno.ECONNRESET, errno.EPIPE)
BROKEN_OFF = "the server ended the connection in the middle of the answer"


class ChatError(TurnoutError):
    """The server cannot be reached, or refused, or ended its answer early."""


class ContextExceeded(ChatError):
    """The server refused messages that the model's context does not hold."""


class ChatClient:
    """A client of one server."""

    def __init__(self, address: str, api_key: str | None = None) -> None:
        """Raises ChatError for an invalid address, ConfigError for a key that cannot be sent."""
        try:
            self.url = server_url(address)
        except ConfigError as error:
            raise ChatError(str(error)) from None
        self._headers = {"Content-Type": "application/json", **authorization(api_key)}

    def models(self) -> list[str]:
        """The models that the server serves. Raises ChatError where no server answers."""
        try:
            with self._reaching():
                content = asyncio.run(self._get("/v1/models"))
            return [str(model["id"]) for model in json.loads(content)["data"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ChatError(f"the server at {self.url} is not compatible with OpenAI's API") from None

    def answer(self, messages: Sequence[Message], parameters: Mapping[str, Any]) -> Generator[Piece]:
        """The answer, piece by piece; closing the iterator early makes the server stop.

        Raises ChatError, also where the stream ends before the server has said that the answer does.
        """
        body = _encoded({**parameters, "messages": list(messages), "stream": True})
        with self._reaching(), asyncio.Runner() as runner:  # which closes the connection when it ends
            pieces = self._pieces(body)
            try:
                while (piece := runner.run(_next(pieces))) is not None:
                    yield piece
            finally:  # left to the runner, this generator and the request inside it would close side by side
                runner.run(_close(pieces))

    # -------------------------------------------------------------- requests

    async def _get(self, path: str) -> bytes:
        async with self._request("GET", path) as response:
            return await read_beginning(response)

    async def _pieces(self, body: bytes) -> AsyncGenerator[Piece]:
        reader, finished = EventReader(_Chunk), False
        async with self._request("POST", "/v1/chat/completions", body) as response:
            async for data in response.content.iter_any():
                for chunk in _decoded(reader, data):
                    for piece in chunk.pieces():
                        finished = finished or piece.finish_reason is not None
                        yield piece
                if reader.done:
                    return
        if not finished:
            raise ChatError(BROKEN_OFF)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Raises ChatError where the server refuses."""
        local = is_local(self.url)  # no proxy reaches this machine's own servers
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        async with aiohttp.ClientSession(
            headers=self._headers, timeout=timeout, trust_env=not local, connector=connector(self.url)
        ) as session:
            asked = session.request(method, http_url(self.url) + path, data=body, allow_redirects=False)
            async with await self._begun(asked) as response:
                if response.status >= 400:
                    raise _refusal(response, await read_beginning(response))
                yield response

    async def _begun(self, asked: Awaitable[aiohttp.ClientResponse]) -> aiohttp.ClientResponse:
        """The response once its headers are there. Raises ChatError where the server left before."""
        try:
            return await asked
        except (aiohttp.ServerDisconnectedError, OSError) as error:
            left = isinstance(error, aiohttp.ServerDisconnectedError) or error.errno in RESET
            if isinstance(error, aiohttp.ClientConnectorError):
                left = isinstance(error.os_error, ConnectionResetError)  # within the handshake
            if not left:
                raise
        # The alert that a certificate is required gets lost: asyncio's server closes without sending it.
        hint = "speaks TLS, write https://"
        if self.url.startswith("https:"):
            hint = "requires a certificate of its clients, turnout chat has none to give"
        raise ChatError(f"the server at {self.url} ended the connection without an answer; if it {hint}")

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turns connection errors into a ChatError."""
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as error:
            raise ChatError(
                f"the certificate of {self.url} is not trusted ({error.certificate_error}); if it should be, "
                "name its file, or its authority's, in SSL_CERT_FILE"
            ) from None
        except aiohttp.ClientConnectorSSLError as error:
            raise ChatError(
                f"TLS with {self.url} failed ({error.os_error}); if the server speaks none, write http://"
            ) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ChatError(
                f"no server answers at {self.url} ({error}); start one with: turnout serve"
            ) from None
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError):
            raise ChatError(BROKEN_OFF) from None
        except (aiohttp.ClientError, OSError) as error:  # OSError: TimeoutError, too
            if isinstance(error, OSError) and error.errno in RESET:
                raise ChatError(BROKEN_OFF) from None
            reason = describe_error(error)[:MOST_CHARACTERS]
            raise ChatError(f"the connection to {self.url} failed: {reason}") from None


def _refusal(response: aiohttp.ClientResponse, body: bytes) -> ChatError:
    reason = error_text(body) or response.reason
    kind = ContextExceeded if any(words in body.lower() for words in CONTEXT) else ChatError
    return kind(f"the server refused ({response.status}): {reason}")


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # input that is not UTF-8, or a temperature that is not a number
        raise ChatError(f"this cannot be sent: {error}") from None


async def _next(pieces: AsyncGenerator[Piece]) -> Piece | None:
    """Returns the next piece, or None after the last."""
    return await anext(pieces, None)


async def _close(pieces: AsyncGenerator[Piece]) -> None:
    """Ends the request, so that the server stops."""
    await pieces.aclose()


# ------------------------------------------------------------------ what comes back


class _Choice(msgspec.Struct):
    delta: Piece
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    error: dict[str, object] | str | None = None

    def pieces(self) -> list[Piece]:
        """Returns the chunk's pieces of the answer.

        Raises ChatError for an error that the server reports, and if this is not a chat completion.
        """
        if self.error is not None:
            raise ChatError(f"the server stopped with an error: {error_message(self.error)}")
        if self.choices is None:
            raise ChatError("the server did not send a chat completion: there are no choices")
        for choice in self.choices:
            choice.delta.finish_reason = choice.finish_reason
        return [choice.delta for choice in self.choices]


def _decoded(reader: EventReader[_Chunk], data: bytes) -> list[_Chunk]:
    try:
        return reader.feed(data)
    except ValueError as error:
        raise ChatError(f"the server did not send a chat completion: {error}") from None
