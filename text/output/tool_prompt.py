"""Tools for models whose chat template knows none: they are described in a system message.

The form is that of Hermes: calls in ``<tool_call>``, results in ``<tool_response>``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.core.types.output_format import Calls, JsonCall, OutputFormat

__all__ = ["DEFAULT_FORMAT", "with_tools_described"]

DEFAULT_FORMAT = OutputFormat(found_by=(), calls=Calls(JsonCall(), open="<tool_call>", close="</tool_call>"))
"""How such a model is told to call tools."""

INSTRUCTIONS = """You may call these functions, which are described by JSON schemas:
<tools>
{tools}
</tools>
To call one, write a JSON object with its name and its arguments as follows, and nothing after the last call:
<tool_call>
{{"name": "NAME", "arguments": {{…}}}}
</tool_call>"""

Message = Mapping[str, Any]


def with_tools_described(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A conversation in which tools, earlier calls and their results are text.

    tools: as OpenAI's API has them; none: calls and results are written as text all the same.
    """
    told = [_as_text(message) for message in messages]
    if not tools:
        return told
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    instructions = INSTRUCTIONS.format(tools=lines)
    if told and told[0].get("role") == "system":
        said = told[0].get("content") or ""
        return [{**told[0], "content": f"{said}\n\n{instructions}" if said else instructions}, *told[1:]]
    return [{"role": "system", "content": instructions}, *told]


def _as_text(message: Message) -> dict[str, Any]:
    if message.get("role") == "tool":
        return {
            "role": "user",
            "content": f"<tool_response>\n{message.get('content') or ''}\n</tool_response>",
        }
    calls = message.get("tool_calls") or ()
    if not calls:
        return dict(message)
    texts = [message["content"]] if message.get("content") else []
    for call in calls:
        function = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        texts.append(f"<tool_call>\n{json.dumps(function, ensure_ascii=False)}\n</tool_call>")
    kept = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**kept, "content": "\n".join(texts)}
