"""The seam of logits processors: what changes a model's logits before a strategy looks at them.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.types.request import Request, RequestSpec
    from turnout.core.types.request import Sequence as TokenSequence
    from turnout.core.types.sampling_params import SamplingParams

__all__ = ["LogitsProcessor", "Row", "ServedModel"]


# Hundreds a step: a struct is made in a tenth of a dataclass's time.
class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of logits: what may come after the tokens of `sequence` and then `guesses`.

    ::

        sequence.tokens [ prompt .............. | output ...... ]
        guesses                                                 [ drafted, not yet accepted ]
        this row says what comes here                                                        ^
    """

    sequence: TokenSequence
    """Whose next token it is."""
    index: int
    """For which choice of the request the token is; choices that have not parted share a sequence."""
    guesses: tuple[int, ...] = ()
    """Drafted tokens behind it, not accepted yet."""

    @property
    def request(self) -> Request:
        """The sequence's."""
        return self.sequence.request

    @property
    def params(self) -> SamplingParams:
        """The request's."""
        return self.sequence.request.params

    @property
    def position(self) -> int:
        """Of the token to be chosen; the first of a prompt is at 0."""
        return len(self.sequence.tokens) + len(self.guesses)

    @property
    def output_length(self) -> int:
        """Tokens behind the prompt so far, guesses included."""
        return self.position - len(self.request.prompt)

    def last(self, count: int) -> list[int]:
        """The last `count` tokens of the output, guesses included; fewer where there are no more."""
        guesses = self.guesses[max(0, len(self.guesses) - count) :]
        tokens = self.sequence.tokens
        start = max(len(tokens) - (count - len(guesses)), len(self.request.prompt))
        return [*tokens[start:], *guesses]


class ServedModel(NamedTuple):
    """What a processor may know of the model."""

    folder: Path
    """Of the checkpoint; its tokenizer is there too."""
    vocab_size: int
    """Columns of the logits; a tokenizer may know fewer tokens, or more."""
    eos_token_ids: frozenset[int]
    """Tokens that end a text."""


class LogitsProcessor(ABC):
    """Changes logits for the requests that want it, in every decoding strategy and in every draft."""

    masks: ClassVar[bool] = False
    """True: it only forbids tokens. Those come after all others, so that nothing undoes them."""
    extra_args: ClassVar[tuple[str, ...]] = ()
    """Names of the `SamplingParams.extra_args` that it takes; one that nobody takes is refused."""

    def start(self, model: ServedModel) -> None:  # noqa: B027
        """Called once, before the first request."""

    @abstractmethod
    def wants(self, params: SamplingParams) -> bool:
        """Is there anything to do for a request with these parameters?

        Asked once as it arrives; who wants nothing costs nothing.
        """

    def prepare(self, spec: RequestSpec) -> Callable[[], object] | None:
        """What a request that wants it needs first and takes too long for the engine's loop; None: nothing.

        Asked as the request arrives. A server calls what is returned once, in another thread, while other
        requests are served; then `check` is asked. Raising RequestError, here or there, refuses the request.
        Who drives an engine without a server need not prepare anything: `check` must do without.
        """
        return None

    def check(self, request: Request) -> None:  # noqa: B027
        """Refuse a request that wants it, by raising RequestError. Asked once as it arrives."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        """Change `logits` in place; called at most once for each batch of rows that a strategy looks at.

        logits: fp32 [rows, vocab_size], on the device, only of requests that want it. They may be
        log-probabilities, as in beam search: do not rely on their scale. What is done to a row depends
        on that row alone. An exception ends the requests of `rows` with an error that names the plugin;
        to end some of them only, set their `fault`.
        """
