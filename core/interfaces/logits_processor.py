"""The logits processor interface: changes a model's logits before a decoding strategy uses them.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from turnout.core.interfaces.figures import Figures

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.types.request import Request, RequestSpec
    from turnout.core.types.request import Sequence as TokenSequence
    from turnout.core.types.sampling_params import SamplingParams

__all__ = ["CancellableWork", "LogitsProcessor", "Row", "ServedModel"]


# A struct, since hundreds are made in a step: it takes a tenth of the time of a dataclass.
class Row(msgspec.Struct, frozen=True, gc=False):
    """One row of logits: what may come after the tokens of `sequence` and then `draft_tokens`.

    ::

        sequence.tokens [ prompt .............. | output ...... ]
        draft_tokens                                            [ not accepted yet ]
        this row says what comes here                                                        ^
    """

    sequence: TokenSequence
    """The sequence whose next token is chosen by this row."""
    index: int
    """The choice of the request that the token is for; choices that have not forked yet share a sequence."""
    draft_tokens: tuple[int, ...] = ()
    """Drafted tokens after the sequence, not accepted yet."""

    @property
    def guesses(self) -> tuple[int, ...]:
        """The name that `draft_tokens` had, for plugins that use it."""
        return self.draft_tokens

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
        return len(self.sequence.tokens) + len(self.draft_tokens)

    @property
    def output_length(self) -> int:
        """Tokens after the prompt so far, draft tokens included."""
        return self.position - len(self.request.prompt)

    def last(self, count: int) -> list[int]:
        """Returns the last `count` tokens of the output, draft tokens included, or as many as there are."""
        draft_tokens = self.draft_tokens[max(0, len(self.draft_tokens) - count) :]
        tokens = self.sequence.tokens
        start = max(len(tokens) - (count - len(draft_tokens)), len(self.request.prompt))
        return [*tokens[start:], *draft_tokens]


class ServedModel(NamedTuple):
    """What a logits processor may know of the model."""

    folder: Path
    """The folder of the checkpoint, with its tokenizer."""
    vocab_size: int
    """Columns of the logits; a tokenizer may know fewer tokens, or more."""
    eos_token_ids: frozenset[int]
    """Tokens that end a text."""


class CancellableWork(ABC):
    """Work that `prepare` may return in place of a function, to be told when its client leaves."""

    @abstractmethod
    def __call__(self) -> object:
        """Does the work, in another thread. May raise RequestError, which rejects the request."""

    @abstractmethod
    def cancel(self) -> None:
        """Ends the work, whose request is gone. Called in the engine's thread, at any time."""


class LogitsProcessor(ABC):
    """Changes logits for the requests that want it, in every decoding strategy and in every draft."""

    masks: ClassVar[bool] = False
    """True: it only forbids tokens. Such processors apply after all others, so that none undoes them."""
    extra_args: ClassVar[tuple[str, ...]] = ()
    """Names of request arguments that the processor reads in `params.extra_args`, such as ``("no_repeat",)``,
    and validates in `check`. Arguments that no plugin names are refused."""

    def start(self, model: ServedModel) -> None:  # noqa: B027
        """Called once, before the first request, with the checkpoint's folder and vocabulary.

        By default it does nothing.
        """

    def warm_up(self) -> None:  # noqa: B027
        """Called once, in a thread of its own, when a server begins to take requests.

        It may do ahead what a first request would wait for, such as starting a process. By default it does
        nothing.
        """

    @abstractmethod
    def wants(self, params: SamplingParams) -> bool:
        """Whether the processor applies to requests with these parameters.

        Called as a request arrives: by a server before `prepare` and again before `check`, so it must answer
        the same for the same parameters. A processor that does not apply costs the request nothing. Return
        True to process every request; to decide by client, return True and look at `row.request.spec.client`
        in `apply`.
        """

    def prepare(self, spec: RequestSpec) -> Callable[[], object] | None:
        """Returns slow work that a request needs before `check`, such as compiling a grammar; None: none.

        Called as the request arrives, if the processor applies. A server calls what is returned once, in
        another thread, while other requests are served, and then `check`; it keeps what is returned until
        then. Raising RequestError in either refuses the request. Return a `CancellableWork` to be told when
        the client leaves meanwhile. An engine used without a server (`LLM`) prepares nothing: `check` must do
        what is still missing.
        """
        return None

    def check(self, request: Request) -> None:  # noqa: B027
        """Raises RequestError, with a reason, to refuse a request. By default it does nothing.

        Called once, as the request arrives, if the processor applies.
        """

    @abstractmethod
    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        """Changes `logits` in place; called at most once for each batch of rows that a strategy uses.

        `logits` are fp32 `[rows, vocab_size]`, on the device, of the requests that the processor applies to.
        They may be log-probabilities, as in beam search: do not rely on their scale. Work on all rows at
        once: a Python loop over rows is fine, one over tokens is not. The change to a row must depend on that
        row alone, or answers would depend on the batch. Leave a finite value in each row, and no NaN: the
        engine does not check, and otherwise chooses an arbitrary token.

        An exception ends the requests of `rows` with an error that names the plugin; to end only some of
        them, set their `fault`, to a RequestError if the request is to blame.
        """

    def figures(self) -> Figures:
        """Returns counters and gauges for `GET /metrics`, asked for a few times a second. None by default."""
        return Figures()
