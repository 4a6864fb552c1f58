"""Routes prompts that start alike to one replica, which computes their common prefix once."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated

from pydantic import Field

from turnout.core.engine.packed_prompt import first
from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.plugins.routers.affinity import Slack, checked_slack, preferred

__all__ = ["PrefixAffinity"]


class PrefixAffinity(Router):
    """Routes by a hash of the prompt's first tokens, so that prefix caches are found again."""

    def __init__(
        self,
        tokens: Annotated[
            int, Field(description="First tokens that count; prompts that differ in them may part.")
        ] = 256,
        slack: Slack = 1.5,
    ) -> None:
        if tokens < 1:
            raise ConfigError(f"tokens must be at least 1, not {tokens}")
        self._tokens = tokens
        self._slack = checked_slack(slack)
        self.watches = slack != 0

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        begin = first(request.prompt, self._tokens)
        return preferred(blake2b(begin, digest_size=16).digest(), replicas, self._slack)
