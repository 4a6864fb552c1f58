"""A response whose body is being sent, as one that writes into it between two turns of its task sees it."""

from __future__ import annotations

from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from turnout.server.http.connections.gentle_transport import GentleTransport

__all__ = ["OPEN_RESPONSE", "OpenResponse"]

OPEN_RESPONSE = "turnout.open_response"
"""In the scope: the connection's `OpenResponse`."""


class OpenResponse:
    """Writes chunks without a task's turn, where the connection takes them at once; or ends short."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def writable(self) -> bool:
        """False before the response begins and after its end, and while the client has bytes left to read."""
        cycle = self._cycle
        return bool(cycle.chunked_encoding) and not (
            cycle.disconnected or cycle.response_complete or cycle.flow.write_paused
        )

    def write(self, body: bytes) -> None:
        """Write a part of the body; to be called while the response is `writable`."""
        if body:  # an empty chunk would end the response
            transport = cast(GentleTransport, self._cycle.transport)
            transport.write_at_once(b"%x\r\n%b\r\n" % (len(body), body))

    def break_off(self) -> None:
        """Close the connection within the response, by which the client learns that it is not whole."""
        self._cycle.disconnected = True  # else uvicorn would log that the application is at fault
        self._cycle.transport.close()
