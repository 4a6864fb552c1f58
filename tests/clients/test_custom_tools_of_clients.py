"""What an assistant writes as the argument of a custom tool is its input, and goes back as it came."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from asking import strict_client
from assistant import NAME, AssistantServer
from script import Script, call, thought

PATCH = '*** Begin\n- print("a\\tb")\n+ naïve 😀 \u2028 漢\n*** End\n'
APPLY: Any = {"type": "custom", "name": "apply", "description": "Applies a patch."}
ASKED = "Mend it."


def turn(ascii: bool) -> str:
    """A call whose JSON has an escape for each character beyond ASCII, or for none."""
    body = json.dumps({"name": "apply", "arguments": {"input": PATCH}}, ensure_ascii=ascii)
    return thought("Easy.") + f"So.\n<tool_call>\n{body}\n</tool_call>\n"


@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_responses(server: AssistantServer, script: Script, streamed: bool, ascii: bool) -> None:
    script.say(turn(ascii), "Done.")
    with strict_client(server.url) as client:
        asked: Any = {"model": NAME, "tools": [APPLY], "input": ASKED}
        response = client.responses.create(**asked, stream=streamed)
        if streamed:
            told = list(response)
            pieces = [each.delta for each in told if each.type == "response.custom_tool_call_input.delta"]
            assert "".join(pieces) == PATCH and len(pieces) > 20 and all(pieces)
            response = told[-1].response
        called = response.output[-1]
        assert (called.type, called.input) == ("custom_tool_call", PATCH)
        result: Any = {"type": "custom_tool_call_output", "call_id": called.call_id, "output": "Applied."}
        server.forget_prompts()
        go_on: Any = {"model": NAME, "tools": [APPLY]}
        answers = [
            client.responses.create(**go_on, input=[result], previous_response_id=response.id),
            client.responses.create(
                **go_on, input=[{"role": "user", "content": ASKED}, *response.output, result]
            ),
        ]
    assert [each.output_text for each in answers] == ["Done."] * 2
    by_name, by_items = server.prompts()
    assert by_name == by_items and "<tool_response>\nApplied." in by_name
    written = by_name.rpartition('"arguments": ')[2].partition("}\n</tool_call>")[0]
    assert json.loads(written) == {"input": PATCH}


def test_chat(server: AssistantServer, script: Script) -> None:
    script.say(turn(ascii=True), "Done.")
    tools: Any = [{"type": "custom", "custom": {"name": "apply", "description": "Applies a patch."}}]
    messages: Any = [{"role": "user", "content": ASKED}]
    with strict_client(server.url) as client:
        (choice,) = client.chat.completions.create(model=NAME, messages=messages, tools=tools).choices
        (called,) = choice.message.tool_calls or ()
        assert called.type == "custom" and called.custom.input == PATCH
        assert choice.finish_reason == "tool_calls" and choice.message.content == "So."
        back = choice.message.model_dump(exclude_none=True)
        messages += [back, {"role": "tool", "tool_call_id": called.id, "content": "Applied."}]
        answer = client.chat.completions.create(model=NAME, messages=messages, tools=tools)
        assert answer.choices[0].message.content == "Done."
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as lenient:
        stream = lenient.chat.completions.create(model=NAME, messages=messages[:1], tools=tools, stream=True)
        deltas = [each for chunk in stream for each in chunk.choices[0].delta.tool_calls or ()]
    pieces: list[Any] = [delta.to_dict()["custom"] for delta in deltas]
    assert "".join(piece["input"] for piece in pieces) == PATCH and len(pieces) > 20


def test_the_model_is_told_of_a_function_with_one_text(server: AssistantServer, script: Script) -> None:
    script.say("Yes.")
    server.forget_prompts()
    held = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    with strict_client(server.url) as client:
        tools: Any = [APPLY, {**APPLY, "name": "shout", "format": held}]
        client.responses.create(model=NAME, tools=tools, input=ASKED)
    (prompt,) = server.prompts()
    told = [json.loads(line)["function"] for line in prompt.splitlines() if line.startswith('{"')]
    assert [each["name"] for each in told] == ["apply", "shout"]
    assert {each["description"] for each in told} == {"Applies a patch."}
    texts = [each["parameters"]["properties"]["input"] for each in told]
    matches = "The whole text matches this regular expression: a+"
    assert texts == [{"type": "string"}, {"type": "string", "description": matches}]
    assert all(each["parameters"]["required"] == ["input"] for each in told)


def test_what_the_expression_forbids_cannot_be_written(server: AssistantServer, script: Script) -> None:
    held = {"type": "grammar", "syntax": "regex", "definition": "[0-9+ ]+"}
    tools: Any = [{"type": "custom", "name": "add", "format": held}]
    with strict_client(server.url) as client:
        script.say(call("add", input="1 + 2"))
        (called,) = client.responses.create(model=NAME, tools=tools, input=ASKED).output
        assert called.type == "custom_tool_call" and called.input == "1 + 2"
        script.say(call("add", input="1 + 2;"))
        with pytest.raises(openai.APIStatusError, match="the grammar forbids"):
            client.responses.create(model=NAME, tools=tools, input=ASKED)
