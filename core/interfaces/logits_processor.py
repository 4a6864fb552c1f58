"""The logits processor interface: changes a model's logits before a decoding strategy uses them.

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


# A struct, since hundreds are made in a step: it takes a tenth of the time of a dataclass.
class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of logits: what may come after the tokens of `sequence` and then `guesses`.

    ::

        sequence.tokens [ prompt .............. | output ...... ]
        guesses                                                 [ drafted, not yet accepted ]
        this row says what comes here                                                        ^
    """

    sequence: TokenSequence
    """The sequence whose next token is chosen by this row."""
    index: int
    """The choice of the request that the token is for; choices that have not forked yet share a sequence."""
    guesses: tuple[int, ...] = ()
    """Drafted tokens after the sequence, not accepted yet."""

    @property
    def request(self) -> Request:
        """The request of the sequence."""
        return self.sequence.request

    @property
    def params(self) -> SamplingParams:
        """The parameters of the request."""
        return self.sequence.request.params

    @property
    def position(self) -> int:
        """The position of the token to be chosen; the first token of a prompt is at 0."""
        return len(self.sequence.tokens) + len(self.guesses)

    @property
    def output_length(self) -> int:
        """Tokens after the prompt so far, guesses included."""
        return self.position - len(self.request.prompt)

    def last(self, count: int) -> list[int]:
        """Returns the last `count` tokens of the output, guesses included, or as many as there are."""
        guesses = self.guesses[max(0, len(self.guesses) - count) :]
        tokens = self.sequence.tokens
        start = max(len(tokens) - (count - len(guesses)), len(self.request.prompt))
        return [*tokens[start:], *guesses]


class ServedModel(NamedTuple):
    """What a logits processor may know of the model."""

    folder: Path
    """The folder of the checkpoint, with its tokenizer."""
    vocab_size: int
    """Columns of the logits; a tokenizer may know fewer tokens, or more."""
    eos_token_ids: frozenset[int]
    """Tokens that end a text."""


class LogitsProcessor(ABC):
    """Changes logits for the requests that want it, in every decoding strategy and in every draft."""

    masks: ClassVar[bool] = False
    """True: it only forbids tokens. Such processors apply after all others, so that none undoes them."""
    extra_args: ClassVar[tuple[str, ...]] = ()
    """The names of `SamplingParams.extra_args` that it takes. Names that no processor takes are rejected."""

    def start(self, model: ServedModel) -> None:  # noqa: B027
        """Called once, before the first request."""

    @abstractmethod
    def wants(self, params: SamplingParams) -> bool:
        """Whether the processor applies to requests with these parameters.

        Called once, as a request arrives. A processor that does not apply costs the request nothing.
        """

    def prepare(self, spec: RequestSpec) -> Callable[[], object] | None:
        """Returns work that a request needs first and that is too long for the engine's loop; None: none.

        Called as the request arrives, if the processor applies. A server calls what is returned once, in
        another thread, while other requests are served, and then `check`. Raising RequestError in either
        rejects the request. An engine used without a server prepares nothing: `check` must work without.
        """
        return None

    def check(self, request: Request) -> None:  # noqa: B027
        """Raises RequestError to reject a request. Called once, as it arrives, if the processor applies."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        """Changes `logits` in place; called at most once for each batch of rows that a strategy uses.

        logits: fp32 [rows, vocab_size], on the device, of the requests that the processor applies to. They
        may be log-probabilities, as in beam search: do not rely on their scale. The change to a row must
        depend on that row alone. An exception ends the requests of `rows` with an error that names the
        plugin; to end only some of them, set their `fault`.
        """
