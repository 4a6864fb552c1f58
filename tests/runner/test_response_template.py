"""A checkpoint's `response_template` becomes a format, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.core.registry.registry import Registry
from turnout.core.types.output_format import Calls, JsonCall, NamedCall, Notation, Region
from turnout.plugins.formats.gemma import gemma4
from turnout.plugins.formats.hermes import hermes
from turnout.plugins.formats.qwen import qwen3_coder
from turnout.runner.output_format import find_format
from turnout.runner.response_template import NotExpressible, format_of

THINK = {"open": "<think>", "close": "</think>", "content": "text"}
FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
WHOLE = {"type": "function", "function": "{content}"}
QWEN = {
    "open_pattern": r"\s*<tool_call>",
    "close": "</tool_call>",
    "repeats": True,
    "content": "json",
    "transform": WHOLE,
}
QWEN_CODER = {
    "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
    "close_pattern": r"</function>\s*</tool_call>",
    "repeats": True,
    "content": "xml-inline",
    "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
    "transform": FUNCTION,
}
GEMMA = {
    "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
    "close": "<tool_call|>",
    "repeats": True,
    "content": "json",
    "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
    "transform": FUNCTION,
}
MISTRAL = {
    "open": "[TOOL_CALLS]",
    "content": "json",
    "transform_each": True,
    "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}},
}


def template(calls: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A template as transformers has it."""
    given = {"content": {"close": "<|im_end|>", "content": "text"}, **fields}
    return {"start_anchor": "x", "fields": {**given, "tool_calls": calls} if calls else given}


def test_calls_in_json() -> None:
    format = format_of(template(QWEN, reasoning_content=THINK))
    assert (format.calls, format.regions) == (hermes().calls, hermes().regions)


def test_calls_with_tagged_arguments() -> None:
    assert format_of(template(QWEN_CODER)).calls == qwen3_coder().calls


def test_calls_in_another_notation() -> None:
    notation = Notation(quote='<|"|>', bare_keys=True)
    calls = Calls(NamedCall(notation=notation), open="<|tool_call>call:", close="<tool_call|>")
    assert format_of(template(GEMMA)).calls == calls == gemma4().calls


def test_a_list_of_calls() -> None:
    calls = Calls(JsonCall(), before="[TOOL_CALLS]", lead="[", between=",", after="]")
    assert format_of(template(MISTRAL)).calls == calls


def test_reasoning_alone() -> None:
    thought = {"open": "<|channel>thought\n", "close": "<channel|>"}
    format = format_of(template(thinking=thought))
    assert format.calls is None
    assert format.regions == (Region("reasoning", "<|channel>thought", "<channel|>"),)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"version": 2}, "version"),
        ({"fields": {}}, "no fields"),
        (template(mood={"open": "a"}), "'mood'"),
        (template(content={"open": "<|final|>"}), "answer's text"),
        (template({**QWEN, "open_pattern": r"<tool_call>|<call>"}), "expression"),
        (template({**QWEN, "open": ["<a>", "<b>"]}), "several markers"),
        (template({**QWEN, "content": "kv-lines"}), "'kv-lines'"),
        (template({**QWEN, "transform": {"function": {"name": "{content.a.b}", "arguments": "x"}}}), "keys"),
        (
            template({**GEMMA, "content_args": {"unquoted_keys": True, "string_delims": [[["a"], ["a"]]]}}),
            "notation",
        ),
    ],
)
def test_what_no_format_can_say_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotExpressible, match=reason):
        format_of(given)


def in_folder(folder: Path, **config: Any) -> Path:
    (folder / "chat_template.jinja").write_text("<tool_call> arguments </think>", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_the_checkpoints_own_template_goes_before_what_its_chat_template_shows(tmp_path: Path) -> None:
    found = find_format(Registry.load(), None, in_folder(tmp_path, response_template=template(GEMMA)))
    assert found.format == format_of(template(GEMMA))
    assert "response_template" in found.told


def test_a_template_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    given = template({**QWEN, "content": "kv-lines"})
    found = find_format(Registry.load(), None, in_folder(tmp_path, response_template=given))
    assert found.format == hermes()
    assert (
        "hermes" in found.told and "response_template is ignored" in found.told and "kv-lines" in found.told
    )


def test_the_older_schema_is_named_too(tmp_path: Path) -> None:
    found = find_format(Registry.load(), None, in_folder(tmp_path, response_schema={"type": "object"}))
    assert found.format == hermes()
    assert "response_schema is ignored" in found.told


def test_a_named_format_goes_before_all(tmp_path: Path) -> None:
    folder = in_folder(tmp_path, response_template=template(GEMMA))
    assert find_format(Registry.load(), "hermes", folder).format == hermes()
