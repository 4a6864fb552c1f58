"""Every bound on what a client may send or make the server do, in one place.

docs/reference/limits.md is written from this module. A bound that an option sets has its default here and its
option in `turnout.config`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BAD_WORDS",
    "BAD_WORDS_TEXT",
    "BODY",
    "CHOICES",
    "LISTED_TOKENS",
    "LOGPROBS",
    "PROMPTS",
    "RESTART_WAIT",
    "STOP_LENGTH",
    "STOP_STRINGS",
    "STOP_TOKENS",
    "Limit",
    "all_limits",
]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A bound, and what a client is told that exceeds it."""

    most: float
    """The largest value that is accepted."""
    unit: str
    """What `most` counts: bytes, characters, tokens, seconds, requests."""
    what: str
    """What is bounded, as a phrase: "stop strings of a request"."""
    answer: str
    """What happens beyond it: the HTTP status and the parameter that the error names, or what is ended."""
    option: str = ""
    """The option that changes it; empty if none does."""

    @property
    def whole(self) -> int:
        """`most` as an integer."""
        return int(self.most)


CHOICES = Limit(
    most=128, unit="choices", what="choices of a prompt (`n`, `best_of`, `beam_width`)", answer="400, `n`"
)
LOGPROBS = Limit(
    most=20, unit="tokens", what="likeliest tokens reported at a position", answer="400, `logprobs`"
)
PROMPTS = Limit(most=2048, unit="prompts", what="prompts of a request", answer="400, `prompt`")
STOP_STRINGS = Limit(most=32, unit="strings", what="stop strings of a request", answer="400, `stop`")
STOP_LENGTH = Limit(most=4096, unit="characters", what="a stop string", answer="400, `stop`")
BAD_WORDS = Limit(most=4096, unit="words", what="bad words of a request", answer="400, `bad_words`")
BAD_WORDS_TEXT = Limit(
    most=65_536, unit="characters", what="bad words of a request together", answer="400, `bad_words`"
)
LISTED_TOKENS = Limit(
    most=2**18,
    unit="tokens",
    what="tokens in `logit_bias`, and in `allowed_token_ids`",
    answer="400, the parameter",
)
STOP_TOKENS = Limit(
    most=4096, unit="tokens", what="tokens in `stop_token_ids`", answer="400, `stop_token_ids`"
)
REQUEST_ID = Limit(
    most=512, unit="characters", what="the header `X-Request-Id`", answer="400, `x-request-id`"
)
BODY = Limit(most=32 * 2**20, unit="bytes", what="body of a request", answer="413", option="--max-body-size")

RESTART_WAIT = Limit(
    most=600,
    unit="seconds",
    what="wait of a request for an engine that takes the place of one that died",
    answer="503, and until it is ready for each new request",
)


def all_limits() -> dict[str, Limit]:
    """Returns every limit by its name in this module, in the order in which they stand."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}
