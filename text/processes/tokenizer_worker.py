"""A process that tokenizes texts: ``python -m`` this module.

It begins with a tokenizer's JSON. A job is ``1`` or ``0``, for special tokens or none, and the text; an
answer is ``T`` and the tokens as 32-bit integers, or ``E`` and the error.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from tokenizers import Tokenizer as Backend

from turnout.core import limits
from turnout.text.processes.worker import serve

__all__ = ["main"]


def main() -> None:
    serve(_begin, limits.TOKENIZING_MEMORY.whole)


def _begin(json: bytes) -> Callable[[bytes], bytes]:
    backend = Backend.from_str(json.decode())
    return lambda job: _answer(backend, job)


def _answer(backend: Backend, job: bytes) -> bytes:
    try:
        special = job[:1] == b"1"
        (encoding,) = backend.encode_batch_fast([job[1:].decode()], add_special_tokens=special)
        return b"T" + array("I", encoding.ids).tobytes()
    except BaseException as error:  # a panic of the library is no Exception
        return b"E" + f"{error!s:.200}".encode()


if __name__ == "__main__":
    main()
