"""A process that tokenizes texts: ``python -m`` this module.

It begins with a tokenizer's JSON. A job is the text behind `SPECIAL`, `BARE` or `LITERAL`; an answer is ``T``
and the tokens as 32-bit integers, or ``E`` and the error.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache

from tokenizers import Tokenizer as Backend

from turnout.core import limits
from turnout.text.processes.control_tokens import literal_backend
from turnout.text.processes.worker import serve

__all__ = ["BARE", "LITERAL", "SPECIAL", "main"]

SPECIAL, BARE, LITERAL = b"1", b"0", b"L"
"""With the special tokens that the tokenizer adds; without them; and with those that the text spells as plain
text, too."""


def main() -> None:
    serve(_begin, limits.TOKENIZING_MEMORY.whole)


def _begin(json: bytes) -> Callable[[bytes], bytes]:
    rules = json.decode()
    backend = Backend.from_str(rules)
    literal = cache(lambda: literal_backend(rules))
    return lambda job: _answer(literal() if job[:1] == LITERAL else backend, job)


def _answer(backend: Backend, job: bytes) -> bytes:
    try:
        special = job[:1] == SPECIAL
        (encoding,) = backend.encode_batch_fast([job[1:].decode()], add_special_tokens=special)
        return b"T" + array("I", encoding.ids).tobytes()
    except BaseException as error:  # a panic of the library is no Exception
        return b"E" + f"{error!s:.200}".encode()


if __name__ == "__main__":
    main()
