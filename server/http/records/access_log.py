"""The access log: a line for each request that has ended."""

from __future__ import annotations

import logging
from urllib.parse import quote

from turnout.config import ServerConfig
from turnout.server.http.records.record import RequestRecord

__all__ = ["AccessLog"]

logger = logging.getLogger("turnout.access")

EVERY = "*"
SAID = ("method", "path", "status")
IF_ANY = ("model", "key", "batch", "background")
BAD = 400
"""From this status on, a request is logged whatever its path."""


class AccessLog:
    """Writes one line for each request, without its query, its body and its answer."""

    def __init__(self, config: ServerConfig) -> None:
        self._prompts, self._longest = config.log_prompts, config.max_log_len
        self._silent = frozenset(config.disable_access_log_for_endpoints)

    def write(self, record: RequestRecord) -> None:
        if not logger.isEnabledFor(logging.INFO) or self._is_silent(record):
            return
        fields: dict[str, object] = {
            "method": record.method,
            "path": record.path,
            "status": record.status,
            **{name: value for name in IF_ANY if (value := getattr(record, name))},
            "duration_seconds": _rounded(record.duration),
        }
        if (first := record.first_token) is not None:
            fields["ttft_seconds"] = _rounded(first)
        if (answer := record.answer) is not None:
            fields["prompt_tokens"] = answer.prompt_tokens
            fields["completion_tokens"] = answer.completion_tokens
            fields["cached_tokens"] = answer.cached_tokens
        if ended := record.ended:
            fields["ended"] = ended
        if answer is not None and self._prompts:
            fields["prompts"] = answer.prompt_texts(self._longest)
        message = "%s %s %d"
        logger.info(
            message, record.method, quote(record.path), record.status, extra={"fields": fields, "said": SAID}
        )

    def _is_silent(self, record: RequestRecord) -> bool:
        if EVERY in self._silent:
            return True
        return record.path in self._silent and record.status < BAD


def _rounded(seconds: float) -> float:
    return round(seconds, 6)
