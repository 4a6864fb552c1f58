"""Tokenizes in processes beside the server's, so that no tokenizer's rules can hang or fill it."""

from __future__ import annotations

from array import array

from tokenizers import Tokenizer as Backend

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.text.processes.pool import ProcessPool
from turnout.text.processes.tokenizer_worker import BARE, LITERAL, SPECIAL

__all__ = ["TokenizerProcesses"]


class TokenizerProcesses:
    """Processes that tokenize, started when they are needed. May be used from several threads."""

    def __init__(self, backend: Backend) -> None:
        def beginning() -> bytes:
            return backend.to_str().encode()

        self._pool = ProcessPool("turnout.text.processes.tokenizer_worker", "tokenizing", beginning)

    def ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The tokens of a text that is valid Unicode. Raises RequestError where they take too much.

        Raises Overloaded if the system has no room for another process.
        """
        return self._ids(SPECIAL if add_special_tokens else BARE, text)

    def literal_ids(self, text: str) -> list[int]:
        """As `ids` without special tokens; those that the text spells are plain text."""
        return self._ids(LITERAL, text)

    def _ids(self, how: bytes, text: str) -> list[int]:
        data = text.encode()
        seconds = limits.TOKENIZING_SECONDS.most * (1 + len(data) / 2**20)
        answer = self._pool.answer(how + data, seconds)
        if answer is None:
            raise RequestError(
                f"this text takes longer than {seconds:.2g} seconds, or too much memory, to tokenize by the "
                "rules of the model's tokenizer; send a shorter or a plainer one",
                "prompt",
            )
        if answer[:1] == b"E":
            raise RequestError(f"this text cannot be tokenized: {answer[1:].decode()}", "prompt")
        return array("I", answer[1:]).tolist()
