"""Renders conversations with a checkpoint's Jinja template, as transformers does.

Templates come from the hub, so they run in the sandbox that transformers uses, with the same functions and
filters. transformers' own helper is not used, since importing it takes over a second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.core.errors import ConfigError, ModelError, RequestError

if TYPE_CHECKING:
    import jinja2

__all__ = ["ChatTemplate", "chosen_template", "given_template", "named_templates"]

FOR_TOOLS = "tool_use"
"""The name of a template that renders conversations with tools, beside the default."""
MAX_FILE = 2**20
"""Bytes of a template: a hundred times what templates take."""
TAIL = "<|turnout-end-of-final-message|> "
"""Marks where to cut when the final message is continued. Its space shows whether the template trims text."""


def named_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """A checkpoint's templates by name. Template files override those in the tokenizer's configuration.

    Raises ModelError for templates that cannot be read.
    """
    templates = _from_config(config.get("chat_template"))
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = _read(path)
    if (single := folder / "chat_template.jinja").is_file():
        templates["default"] = _read(single)
    return templates


def chosen_template(templates: Mapping[str, str], *, tools: bool) -> str | None:
    """Of a checkpoint's templates, the one that renders conversations with or without tools, as transformers
    chooses; None: there is none."""
    named = templates.get(FOR_TOOLS) if tools else None
    return named or templates.get("default") or next(iter(templates.values()), None)


def given_template(given: str) -> str:
    """The template of ``--chat-template``: a file's, or what is given itself. Raises ConfigError."""
    source = given
    if not any(mark in given for mark in ("{{", "{%", "\n")):
        try:
            source = _read(Path(given))
        except ModelError as error:
            raise ConfigError(f"--chat-template: {error}") from None
    ChatTemplate(source, {}).check()
    return source


def _read(path: Path) -> str:
    try:
        if (size := path.stat().st_size) > MAX_FILE:
            raise ModelError(f"the chat template {path} has {size:,} bytes; at most {MAX_FILE:,} are read")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"the chat template {path} cannot be read: {error}") from error


def _from_config(given: Any) -> dict[str, str]:
    if isinstance(given, str):
        return {"default": given}
    try:
        return {str(entry["name"]): str(entry["template"]) for entry in given or ()}
    except (TypeError, KeyError) as error:
        raise ModelError(
            "chat_template in tokenizer_config.json should be a text, or a list of objects with a 'name' "
            f"and a 'template', not {str(given)[:100]}"
        ) from error


class ChatTemplate:
    """A template, compiled when first used."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self.special_tokens = dict(special_tokens)

    @cached_property
    def _template(self) -> jinja2.Template:
        return _environment().from_string(self.source)

    def check(self) -> None:
        """Raises ConfigError for a template that is malformed."""
        from jinja2.exceptions import TemplateSyntaxError

        try:
            _ = self._template
        except TemplateSyntaxError as error:
            raise ConfigError(f"--chat-template: line {error.lineno}: {error.message}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """The conversation as text. Raises RequestError when the template refuses the messages."""
        chat = [{key: value for key, value in message.items() if value is not None} for message in messages]
        if continue_final_message:
            _mark_final(chat, add_generation_prompt)
        try:
            text = self._template.render(
                messages=chat,
                add_generation_prompt=add_generation_prompt,
                **{"tools": None, "documents": None, **self.special_tokens, **variables},
            )
        except Exception as error:  # templates are programs: any error is possible
            raise RequestError(
                f"the chat template cannot render these messages: {error}", "messages"
            ) from error
        return _cut_final(text) if continue_final_message else text


def _mark_final(chat: list[dict[str, Any]], add_generation_prompt: bool) -> None:
    if add_generation_prompt:
        raise RequestError(
            "continue_final_message and add_generation_prompt exclude each other", "continue_final_message"
        )
    if not chat or not isinstance(chat[-1].get("content"), str):
        raise RequestError("continue_final_message needs a final message with text", "continue_final_message")
    chat[-1]["content"] += TAIL


def _cut_final(text: str) -> str:
    cut = text.rfind(TAIL.rstrip())
    if cut < 0:
        raise RequestError(
            "the chat template leaves out the end of the final message", "continue_final_message"
        )
    return text[:cut] if text.startswith(TAIL, cut) else text[:cut].rstrip()


def _environment() -> jinja2.Environment:
    from jinja2.exceptions import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from turnout.text.generation_tag import GenerationTag

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": _strftime_now}
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Like Jinja's own ``tojson``, but without its escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
