"""A checkpoint's chat template shows the format in which its model writes reasoning and calls."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers import models

from turnout.core.registry.registry import Registry
from turnout.plugins.formats.harmony import harmony
from turnout.runner.output_format import find_format
from turnout.text.model_format import ModelFormat
from turnout.text.tokenizer import load_tokenizer

GPT_OSS = """
{%- for message in messages -%}
    {%- if message.role == "assistant" -%}
        {%- if message.thinking %}
            {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
        {%- endif %}
        {%- if message.tool_calls %}
            {{- "<|start|>assistant to=functions." + message.tool_calls[0].name + "<|channel|>commentary " }}
            {{- "json<|message|>" + message.tool_calls[0].arguments|tojson + "<|call|>" }}
        {%- else %}
            {#- <|return|> ends what is generated #}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
        {%- endif %}
    {%- else %}
        {{- "<|start|>" + message.role + "<|message|>" + message.content + "<|end|>" }}
    {%- endif %}
{%- endfor -%}
<|start|>assistant
"""
"""It has the markers of the published template, in which <|constrain|> is none."""


def test_the_template_of_gpt_oss_is_found_to_be_harmony(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text(GPT_OSS)
    assert find_format(Registry.load(), None, tmp_path).format == harmony()


TOOL_USE = """
{%- for tool in tools %}{{ tool | tojson }}{% endfor -%}
<tool_call>{"name": "", "arguments": {}}</tool_call>"""
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]


def test_the_template_for_tools_shows_how_calls_are_written(tmp_path: Path) -> None:
    """The default one need not know of tools: it renders the conversations without."""
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text(TOOL_USE)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}<think></think>")
    Backend(models.BPE()).save(str(tmp_path / "tokenizer.json"))
    registry = Registry.load()
    found = find_format(registry, None, tmp_path)
    assert found.told == "output format: hermes, by the chat template"
    assert found.format is not None and [region.open for region in found.format.regions] == ["<think>"]

    tokenizer = load_tokenizer(tmp_path)
    format = ModelFormat(tokenizer, found.format, [])
    said = [{"role": "user", "content": "hi"}]
    assert format.conversation(said, TOOLS) == (tokenizer.tools_template, said, {"tools": TOOLS})
    assert format.conversation(said, []) == (tokenizer.chat_template, said, {})
    assert tokenizer.tools_template.source == TOOL_USE

    given = find_format(registry, None, tmp_path, "{{ messages[0].content }}")
    assert given.format is None


def test_a_folder_without_a_template_has_no_format(tmp_path: Path) -> None:
    assert find_format(Registry.load(), None, tmp_path).format is None


def test_a_given_template_shows_the_format(tmp_path: Path) -> None:
    given = tmp_path / "given.jinja"
    given.write_text(GPT_OSS)
    registry = Registry.load()
    assert find_format(registry, None, tmp_path, str(given)).format == harmony()
    assert find_format(registry, None, tmp_path, GPT_OSS).format == harmony()
