"""The script that outputs follow: a token is a function of (request seed, choice, position)."""

from __future__ import annotations

from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["EOS", "VOCABULARY", "scripted_output", "scripted_request", "scripted_token"]

VOCABULARY = 50_000
EOS = 0


def scripted_output(seed: int, tokens: int, choice: int = 0) -> list[int]:
    """What the script says for a request, up to its end of sequence."""
    return [scripted_token(seed, choice, position) for position in range(tokens - 1)] + [EOS]


def scripted_token(seed: int, choice: int, position: int) -> int:
    """Anything but the end of sequence, and hardly ever the same twice."""
    return 1 + (seed * 1_000_003 + choice * 7_919 + position * 104_729) % (VOCABULARY - 1)


def scripted_request(
    id: str,
    prompt: list[int],
    tokens: int,
    *,
    seed: int,
    bound: int | None = None,
    n: int = 1,
    salt: str = "",
) -> RequestSpec:
    """A request that ends by itself after `tokens`, though its client allowed `bound` of them.

    The script's length travels as ``min_tokens``: no stop before it, and then at once.
    """
    params = SamplingParams(n=n, min_tokens=tokens, max_tokens=bound or tokens, temperature=1.0)
    return RequestSpec(id=id, prompt=prompt, params=params, seed=seed, cache_salt=salt)
