"""`LLM.chat` with tools and reasoning: offline as over HTTP, which the same scripts show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from assistant import CONTEXT, HERE, write_assistant
from script import Script, call, thought

from turnout import LLM, SamplingParams
from turnout.core.errors import RequestError

ASKED: list[dict[str, Any]] = [{"role": "user", "content": "What are 2 and 3?"}]


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


def undescribed(a: int) -> int:
    """Has no line for its argument."""
    return a


def untyped(a):  # type: ignore[no-untyped-def]
    """Has no type.

    Args:
        a: One.
    """
    return a


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    return Script(tmp_path_factory.mktemp("script") / "script.json")


@pytest.fixture(scope="module")
def llm(script: Script, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    script.say("")
    yield LLM(
        model=str(write_assistant(tmp_path_factory.mktemp("assistant"))),
        plugins_folder=str(HERE),
        decoding=f"played:script={script.file}",
        max_model_len=CONTEXT,
        kv_memory="64MiB",
        device="cpu",
    )


def ask(llm: LLM, messages: Any = ASKED, **options: Any) -> Any:
    (out,) = llm.chat(messages, SamplingParams(max_tokens=200), progress=False, **options)
    return out.outputs[0]


def test_a_function_is_called_and_its_result_goes_back(llm: LLM, script: Script) -> None:
    script.say(thought("Easy.") + "I add.\n" + call("add", a=2, b=3), "It is 5.")
    first = ask(llm, tools=[add])
    assert (first.reasoning.strip(), first.text.strip()) == ("Easy.", "I add.")
    assert first.finish_reason == "tool_calls"
    (called,) = first.tool_calls
    assert called.name == "add" and called.id.startswith("call_")
    result = add(**json.loads(called.arguments))
    told = {"role": "tool", "tool_call_id": called.id, "content": str(result)}
    answer = ask(llm, [*ASKED, first.message, told], tools=[add])
    assert (answer.text, answer.finish_reason, answer.tool_calls) == ("It is 5.", "stop", [])


def test_the_forms_of_a_choice(llm: LLM, script: Script) -> None:
    script.say(call("add", a=1, b=1))
    for choice in ("auto", "required", "add", {"type": "function", "function": {"name": "add"}}):
        assert len(ask(llm, tools=[add], tool_choice=choice).tool_calls) == 1
    script.say("No.")
    assert ask(llm, tools=[add], tool_choice="none").text == "No."
    with pytest.raises(Exception, match="the grammar forbids"):
        ask(llm, tools=[add], tool_choice="required")


def test_several_conversations_with_several_choices(llm: LLM, script: Script) -> None:
    script.say(call("add", a=1, b=1) + call("add", a=2, b=2))
    params = SamplingParams(max_tokens=200, n=2)
    for out in llm.chat([ASKED, ASKED], params, tools=[add], progress=False):
        assert [len(choice.tool_calls) for choice in out.outputs] == [2, 2]


def test_reasoning_is_apart_without_tools_too(llm: LLM, script: Script) -> None:
    script.say(thought("Hm.") + "Five.")
    answer = ask(llm)
    assert (answer.reasoning.strip(), answer.text.strip()) == ("Hm.", "Five.")
    assert answer.message.keys() == {"role", "content", "reasoning_content"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tools": [undescribed]}, "the function undescribed cannot become a tool"),
        ({"tools": [untyped]}, "the function untyped cannot become a tool"),
        ({"tools": [add, add]}, "two tools are called 'add'"),
        ({"tools": [add], "tool_choice": "subtract"}, "'subtract', which is not among the tools"),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "letters, digits"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(llm: LLM, options: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError, match=why):
        ask(llm, **options)


def test_a_custom_tool_is_called_with_a_text(llm: LLM, script: Script) -> None:
    script.say(call("run", input='print("é")\n'), "It is é.")
    tools = [{"type": "custom", "custom": {"name": "run"}}, add]
    first = ask(llm, tools=tools, tool_choice={"type": "custom", "custom": {"name": "run"}})
    (called,) = first.tool_calls
    assert (called.name, called.input, called.arguments) == ("run", 'print("é")\n', "")
    assert first.finish_reason == "tool_calls"
    told = {"role": "tool", "tool_call_id": called.id, "content": "é"}
    assert ask(llm, [*ASKED, first.message, told], tools=tools).text == "It is é."
    assert ask(llm, tools=tools, tool_choice="run").tool_calls[0].input == called.input
    with pytest.raises(RequestError, match=r"tools\.0\.custom\.name: Field required"):
        ask(llm, tools=[{"type": "custom", "custom": {}}])
