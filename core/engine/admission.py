"""Admits requests that can be served, by context length, vocabulary, sequence slots and KV memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from turnout.core.engine.decoding_dispatch import DecodingDispatch
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.engine.pooling.decoding import NoDecoding
from turnout.core.engine.pooling.dispatch import PoolingDispatch
from turnout.core.errors import ContextExceeded, Interrupted, Overloaded, RequestError
from turnout.core.interfaces.decoding import Decoding
from turnout.core.plugin_faults import title_of
from turnout.core.scheduling.scheduler import Scheduler
from turnout.core.types.pooling import NO_TEXT
from turnout.core.types.request import Request, RequestSpec
from turnout.core.vocabulary import check_in_vocabulary

__all__ = ["Admission", "Limits"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits on requests, besides those of the scheduler and the KV pool."""

    max_model_len: int
    """Tokens of prompt and output together."""
    vocab_size: int
    max_waiting: int
    """Requests that may wait; further ones are rejected as overload."""
    eos_token_ids: frozenset[int] = frozenset()
    generates: bool = True
    """False: the model is an encoder, or a decoder without a language head."""


class Admission:
    """Rejects requests that could never run, which would block the head of the queue for ever."""

    def __init__(
        self,
        limits: Limits,
        scheduler: Scheduler,
        dispatch: DecodingDispatch,
        processors: LogitsProcessors,
        pooling: PoolingDispatch | None = None,
    ) -> None:
        """pooling: None: requests that generate nothing are refused."""
        self._pooling = pooling
        self._no_decoding = NoDecoding()
        self._limits = limits
        self._scheduler = scheduler
        self._dispatch = dispatch
        self._processors = processors

    def check_waiting(self) -> None:
        """Raises Overloaded where as many requests wait as may.

        One that the policy has not seen yet does not count, if it may find a free slot in the next step.
        """
        queues = self._scheduler.queues
        seated = min(queues.changes.arrived, self._scheduler.free_slots)
        if queues.waiting_count - seated >= self._limits.max_waiting:
            raise Overloaded(f"{self._limits.max_waiting} requests are waiting already; try again later")

    def admit(self, spec: RequestSpec, now: float) -> Request:
        """Builds the request of `spec`. Raises RequestError, with the numbers, if it can never be served."""
        self._check_tokens(spec)
        if spec.pooling is not None:
            return self._admit_pooling(spec, now)
        if not self._limits.generates:
            raise RequestError(NO_TEXT, "model")
        decoding, width = self._dispatch.choose(spec.params)
        _check_resumes(spec, decoding)
        request = Request(
            spec,
            decoding,
            now if spec.arrival is None else spec.arrival,
            len(spec.prompt) + self._output_limit(spec),
            self._stops(spec),
            width,
        )
        self._check_fits(request)
        others = (*self._scheduler.policy.extra_args, *decoding.extra_args)
        request.processors = self._processors.wanted(request, others)
        self._scheduler.check(request)
        self._dispatch.check(request)
        return request

    def _admit_pooling(self, spec: RequestSpec, now: float) -> Request:
        if self._pooling is None:
            raise RequestError("this engine gives neither embeddings nor scores", "model")
        spec = self._pooling.without_padding(spec)
        length, prompt = self._limits.max_model_len, len(spec.prompt)
        if prompt > length:
            raise RequestError(
                f"the text has {prompt} tokens, but the model takes {length}; shorten it or set "
                "truncate_prompt_tokens",
                "prompt",
            )
        pooling = self._pooling.admit(spec)
        arrival = now if spec.arrival is None else spec.arrival
        request = Request(spec, self._no_decoding, arrival, prompt, frozenset(), 1)
        request.pooling = pooling
        request.prompt_scores_due = False
        self._check_fits(request)
        self._scheduler.check(request)
        return request

    def _output_limit(self, spec: RequestSpec) -> int:
        length, prompt = self._limits.max_model_len, len(spec.prompt)
        if prompt >= length:
            raise ContextExceeded.of(
                length,
                f"the prompt has {prompt} and at least one is needed for the output; shorten the prompt",
            )
        wanted = length - prompt if spec.params.max_tokens is None else spec.params.max_tokens
        if prompt + wanted > length:
            raise ContextExceeded.of(
                length,
                f"{prompt + wanted} were requested: {prompt} in the prompt and max_tokens={wanted}; "
                f"ask for at most {length - prompt}",
                "max_tokens",
            )
        return wanted

    def _stops(self, spec: RequestSpec) -> frozenset[int]:
        stops = frozenset(spec.params.stop_token_ids)
        return stops if spec.params.ignore_eos else stops | self._limits.eos_token_ids

    def _check_tokens(self, spec: RequestSpec) -> None:
        if not spec.prompt:
            raise RequestError("the prompt is empty: at least one token is needed", "prompt")
        size = self._limits.vocab_size
        for name, tokens in (("prompt", spec.prompt), *spec.params.token_ids()):
            check_in_vocabulary(tokens, size, name)

    def _check_fits(self, request: Request) -> None:
        capacity, kv = self._scheduler.capacity, self._scheduler.kv
        slots = min(capacity.sequences, capacity.tokens)
        if request.width > slots:
            raise RequestError(
                f"the request needs {request.width} sequences at once, at most {slots} can run",
                "n" if request.width == request.params.n else None,
            )
        if not kv.holds(request.limit, request.width):
            raise RequestError(
                f"the request may need {request.width} x {request.limit} tokens of KV memory "
                f"(prompt {len(request.prompt)} + max_tokens {request.limit - len(request.prompt)}), "
                f"the whole pool holds {kv.capacity}; ask for less or raise --kv-memory",
                "max_tokens",
            )


def _check_resumes(spec: RequestSpec, decoding: Decoding) -> None:
    """Raises Interrupted where the text would change silently: the strategy's state died with its engine."""
    if spec.resume is not None and spec.resume.choices and not decoding.resumes:
        raise Interrupted(
            f"the engine that served this request died, and {title_of(decoding, 'decoding')} cannot go on "
            "from the tokens so far (`resumes`); send the request again"
        )
