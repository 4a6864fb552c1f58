"""A process that renders chat templates: ``python -m`` this module.

A job is from `marshal`; an answer is a letter, ``T`` or ``E``, and the text or the error.
"""

from __future__ import annotations

import marshal
from functools import lru_cache
from typing import Any, NamedTuple

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.text.chat_template import ChatTemplate
from turnout.text.processes.worker import serve

__all__ = ["Job"]


class Job(NamedTuple):
    """A conversation to render; plain data."""

    source: str
    special_tokens: dict[str, str]
    messages: list[dict[str, Any]]
    options: dict[str, Any]
    """The arguments of `ChatTemplate.render`."""


def main() -> None:
    serve(lambda _: lambda data: _answer(Job(*marshal.loads(data))), limits.TEMPLATE_MEMORY.whole)


def _answer(job: Job) -> bytes:
    try:
        text = _template(job.source, tuple(job.special_tokens.items())).render(job.messages, **job.options)
        if len(text) > limits.TEMPLATE_TEXT.whole:
            return _error(
                f"the chat template makes {len(text):,} characters of these messages; at most "
                f"{limits.TEMPLATE_TEXT.whole:,} are tokenized"
            )
        return b"T" + text.encode(errors="surrogatepass")
    except RequestError as error:
        return _error(str(error), error.param)
    except MemoryError:
        return _error(
            f"the chat template takes more than {limits.TEMPLATE_MEMORY.whole // 2**20} MiB to render these "
            "messages"
        )


def _error(message: str, param: str | None = "messages") -> bytes:
    return b"E" + marshal.dumps((message[:2000], param))


@lru_cache(4)
def _template(source: str, special_tokens: tuple[tuple[str, str], ...]) -> ChatTemplate:
    return ChatTemplate(source, dict(special_tokens))


if __name__ == "__main__":
    main()
