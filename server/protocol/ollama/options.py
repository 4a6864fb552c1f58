"""The ``options`` of Ollama's requests, as fields of ours."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from turnout.core.errors import RequestError

__all__ = ["Options"]

logger = logging.getLogger(__name__)

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "mirostat": (0,),
    "tfs_z": (1,),
    "typical_p": (1,),
}
"""Options of other samplers, and the values that ask for nothing."""
WINDOW = 64
"""Ollama's `repeat_last_n`, which clients send though they mean the default."""


def _whole(value: object) -> object:
    """Ollama takes 10.0 for an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Whole = Annotated[int, BeforeValidator(_whole)]


class Options(BaseModel):
    """How to generate. Options of Ollama's that load a model, such as `num_gpu`, change nothing."""

    model_config = ConfigDict(strict=True, extra="allow")

    num_predict: Whole | None = None
    """Most tokens to generate; more than fit, and numbers below 1, mean as many as fit."""
    temperature: float | None = None
    top_k: Whole | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: Whole | None = None
    stop: Annotated[list[str], BeforeValidator(_listed)] | None = None
    repeat_penalty: float | None = None
    """`repetition_penalty`, over the whole text."""
    repeat_last_n: Whole | None = None
    """0 turns the penalty off; other windows than the whole text are refused where there is a penalty."""
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    num_ctx: Whole | None = None
    """The server's context is as long as it is; prompts that do not fit are refused, not cut."""

    def fields(self) -> dict[str, Any]:
        """Fields of a completion or a chat. Raises RequestError for a sampler that is not supported."""
        for name, value in (self.model_extra or {}).items():
            if name in NEUTRAL and value not in (None, *NEUTRAL[name]):
                raise RequestError(f"options.{name} is not supported; leave it out", f"options.{name}")
            logger.debug("ignored the option %s", name)
        return {
            "max_tokens": self.num_predict if (self.num_predict or 0) > 0 else None,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "seed": self.seed,
            "stop": self.stop,
            "repetition_penalty": self._penalty(),
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
        }

    def _penalty(self) -> float | None:
        if self.repeat_last_n == 0:
            return 1.0
        if self.repeat_last_n in (None, -1, WINDOW) or self.repeat_penalty in (None, 1):
            return self.repeat_penalty
        raise RequestError(
            "options.repeat_last_n is not supported: repeat_penalty looks at the whole text, which is -1",
            "options.repeat_last_n",
        )
