"""Renders chat templates in processes beside the server's, so that no template can hang or fill it."""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.text.chat_template import ChatTemplate
from turnout.text.processes.pool import ProcessPool

__all__ = ["TemplateProcesses"]


class TemplateProcesses:
    """Processes that render, started when they are needed. May be used from several threads."""

    def __init__(self) -> None:
        self._pool = ProcessPool("turnout.text.prompt.template_worker", "chat templates")

    def render(self, template: ChatTemplate, messages: Sequence[Mapping[str, Any]], /, **options: Any) -> str:
        """As `ChatTemplate.render`. Raises RequestError too for what takes too much time or memory.

        Raises Overloaded if the system has no room for another process.
        """
        job = (template.source, template.special_tokens, [dict(message) for message in messages], options)
        try:
            data = marshal.dumps(job)
        except ValueError as error:
            deep = "nested" in str(error)
            problem = "are nested too deeply" if deep else "hold something else than texts, numbers and lists"
            raise RequestError(f"the messages {problem} for the chat template", "messages") from None
        answer = self._pool.answer(data, limits.TEMPLATE_SECONDS.most)
        if answer is None:
            raise RequestError(
                f"the chat template takes longer than {limits.TEMPLATE_SECONDS.whole} seconds, or too much "
                "memory, to render these messages",
                "messages",
            )
        if answer[:1] == b"T":
            return answer[1:].decode(errors="surrogatepass")
        message, param = marshal.loads(answer[1:])
        raise RequestError(message, param)
