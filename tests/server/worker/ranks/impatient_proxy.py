"""A proxy that waits a second for the other machine to answer."""

from __future__ import annotations

from turnout.server.worker.ranks import proxy

proxy.CONNECT_SECONDS = 1.0
proxy.main()
