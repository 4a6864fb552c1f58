"""A chat template of one's own decides how a model is told of tools, and how it calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asking import strict_client
from click.testing import CliRunner
from tiny_server import serving

from turnout import LLM
from turnout.cli.main import cli

MISTRAL = """{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{%- for m in messages %}{% if m.role == "user" %}[INST]{{ m.content }}[/INST]
{%- elif m.tool_calls %}{% for c in m.tool_calls %}[TOOL_CALLS]{{ c.function.name }}[ARGS]
{{- c.function.arguments | tojson }}{% endfor %}
{%- else %}{{ m.content }}{% endif %}{% endfor %}"""
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
CHANNELS = """{% for m in messages %}<|start|>{{ m.role }}{% if m.role == "assistant" %}<|channel|>final
{%- endif %}<|message|>{{ m.content }}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}
{#- tools: <|channel|>analysis<|message|> <|channel|>final<|message|> <|return|> #}"""
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [{"type": "function", "function": {"name": "forecast", "parameters": SCHEMA}}]
NAMED: Any = {"type": "function", "function": {"name": "forecast"}}
ASKED: Any = [{"role": "user", "content": "How warm is it?"}]
GREEDY: Any = {"temperature": 0.0, "max_tokens": 200}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("{% for m in messages %}", "line 1: "),
        ("{{ messages }}\n{% nothing %}", "line 2: Encountered unknown tag 'nothing'"),
        ("nowhere.jinja", "the chat template nowhere.jinja cannot be read"),
    ],
)
def test_a_template_that_will_not_do_ends_the_start(given: str, why: str) -> None:
    ended = CliRunner().invoke(cli, ["serve", "turnout-tiny", "--chat-template", given])
    assert ended.exit_code not in (0, None) and f"--chat-template: {why}" in ended.output
    assert "Traceback" not in ended.output and "\n  File" not in ended.output


def call_of(llm: LLM) -> tuple[str, str, list[int]]:
    (answer,) = llm.chat(
        ASKED, llm.default_params(**GREEDY), tools=TOOLS, tool_choice="forecast", progress=False
    )
    (call,) = answer.outputs[0].tool_calls
    return call.name, call.arguments, answer.prompt_token_ids


@pytest.mark.slow
@pytest.mark.parametrize("template", [MISTRAL, PLAIN], ids=["knows tools", "knows none"])
@pytest.mark.parametrize("as_file", [True, False])
def test_served_and_offline_tools_are_the_same(template: str, as_file: bool, tmp_path: Path) -> None:
    file = tmp_path / "own.jinja"
    file.write_text(template, encoding="utf-8")
    given = (str(file), template) if as_file else (template, str(file))
    llm = LLM("turnout-tiny", chat_template=given[1], kv_memory="16MiB", device="cpu")
    name, arguments, prompt = call_of(llm)
    assert llm.tokenizer.decode(prompt).startswith("[AVAILABLE_TOOLS]") == (template is MISTRAL)
    asked: Any = {"messages": ASKED, "tools": TOOLS, **GREEDY}
    with serving("--chat-template", given[0]) as server, strict_client(server.url) as client:
        answer = client.chat.completions.create(model="turnout-tiny", tool_choice=NAMED, **asked)
        free = client.chat.completions.create(model="turnout-tiny", **asked)
        assert ("output format: mistral, by the chat template" in server.text()) == (template is MISTRAL)
    (call,) = answer.choices[0].message.tool_calls or []
    assert (call.function.name, call.function.arguments) == (name, arguments)
    assert answer.usage is not None and answer.usage.prompt_tokens == len(prompt)
    (offline,) = llm.chat(ASKED, llm.default_params(**GREEDY), tools=TOOLS, progress=False)
    assert (free.choices[0].message.content or "") == offline.outputs[0].text


@pytest.mark.slow
def test_a_final_message_goes_on_in_its_channel() -> None:
    """Of a model that writes channels, as gpt-oss, what followed was taken for a header."""
    begun = [*ASKED, {"role": "assistant", "content": "Well, "}]
    with serving("--chat-template", CHANNELS) as server, strict_client(server.url) as client:
        answer = client.chat.completions.create(
            model="turnout-tiny",
            messages=begun,
            **GREEDY,
            extra_body={"add_generation_prompt": False, "continue_final_message": True},
        )
    assert answer.choices[0].message.content
