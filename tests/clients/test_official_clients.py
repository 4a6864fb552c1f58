"""OpenAI's and Anthropic's clients, in their strict modes: their helpers, parsers and loops with tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from assistant import NAME, AssistantServer
from openai.lib.streaming.chat import ContentDoneEvent, FunctionToolCallArgumentsDoneEvent
from pydantic import BaseModel
from script import Script, call, thought

ASKED = "How warm is it in Bern?"
ASK: Any = [{"role": "user", "content": ASKED}]
ANSWER = "It is 18 degrees in Bern."
CALLED = [thought("I should look.") + "Let me look.\n" + call("forecast", city="Bern", days=2), ANSWER]


class Forecast(BaseModel):
    """How the weather will be."""

    city: str
    days: int


class Warmth(BaseModel):
    degrees: int
    sure: bool


WARM = '{"degrees": 18, "sure": true}'
CHAT_TOOL = openai.pydantic_function_tool(Forecast, name="forecast")


@pytest.fixture
def oai(server: AssistantServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


@pytest.fixture
def claude(server: AssistantServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=server.url, api_key="none", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


# ------------------------------------------------------------------ models and completions


def test_models(oai: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    assert [model.id for model in oai.models.list()] == [NAME] == [oai.models.retrieve(NAME).id]
    (model,) = claude.models.list()
    assert model == claude.models.retrieve(NAME) and (model.id, model.type) == (NAME, "model")


@pytest.mark.parametrize("streamed", [False, True])
def test_completions(oai: openai.OpenAI, script: Script, streamed: bool) -> None:
    script.say(ANSWER)
    asked: Any = {"model": NAME, "prompt": "<|im_start|>assistant\n", "max_tokens": 50, "stop": ["Bern"]}
    if streamed:
        # OpenAI's type of a chunk has no room for an end that has not come yet; none is sent before it comes.
        usage: Any = {"include_usage": True}
        with openai.OpenAI(base_url=oai.base_url, api_key="none") as lenient:
            chunks = list(lenient.completions.create(**asked, stream=True, stream_options=usage))
        text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
        assert chunks[-1].usage is not None
    else:
        text = oai.completions.create(**asked).choices[0].text
    assert text == "It is 18 degrees in "


# ------------------------------------------------------------------ chat


def test_chat_with_a_parsed_answer(oai: openai.OpenAI, script: Script) -> None:
    script.say(thought("warm?") + WARM)
    parsed = oai.chat.completions.parse(model=NAME, messages=ASK, response_format=Warmth)
    assert parsed.choices[0].message.parsed == Warmth(degrees=18, sure=True)
    with oai.chat.completions.stream(model=NAME, messages=ASK, response_format=Warmth) as stream:
        done = [event for event in stream if isinstance(event, ContentDoneEvent)]
    assert [event.parsed for event in done] == [Warmth(degrees=18, sure=True)]


@pytest.mark.parametrize("streamed", [False, True])
def test_chat_calls_a_tool_and_takes_its_result(oai: openai.OpenAI, script: Script, streamed: bool) -> None:
    script.say(*CALLED)
    asked: Any = {"model": NAME, "messages": ASK, "tools": [CHAT_TOOL]}
    if streamed:
        with oai.chat.completions.stream(**asked) as stream:
            done = [event for event in stream if isinstance(event, FunctionToolCallArgumentsDoneEvent)]
            message = stream.get_final_completion().choices[0].message
        assert [event.parsed_arguments for event in done] == [Forecast(city="Bern", days=2)]
    else:
        message = oai.chat.completions.parse(**asked).choices[0].message
    (called,) = message.tool_calls or ()
    assert called.function.parsed_arguments == Forecast(city="Bern", days=2)
    assert message.content == "Let me look." and message.model_extra["reasoning_content"] == "I should look."
    result = {"role": "tool", "tool_call_id": called.id, "content": "18 degrees"}
    messages = [*ASK, message.model_dump(exclude_none=True), result]
    answered = oai.chat.completions.create(model=NAME, messages=messages, tools=[CHAT_TOOL])
    assert answered.choices[0].message.content == ANSWER
    assert answered.usage.prompt_tokens_details.cached_tokens > 100


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_stop_string_does_not_cut_a_call(oai: openai.OpenAI, script: Script, choice: str) -> None:
    """Calls are valid. The answer before one is cut all the same."""
    script.say(call("forecast", city="Bern. STOP here", days=2))
    asked: Any = {"model": NAME, "messages": ASK, "tools": [CHAT_TOOL], "stop": ["STOP"]}
    (told,) = oai.chat.completions.create(**asked, tool_choice=choice).choices
    assert told.finish_reason == "tool_calls" and told.message.tool_calls
    whole = {"city": "Bern. STOP here", "days": 2}
    assert json.loads(told.message.tool_calls[0].function.arguments) == whole
    with oai.chat.completions.stream(**asked, tool_choice=choice) as stream:
        (done,) = (event for event in stream if isinstance(event, FunctionToolCallArgumentsDoneEvent))
    assert json.loads(done.arguments) == whole
    script.say("Wait. STOP " + call("forecast", city="Bern", days=2))
    (told,) = oai.chat.completions.create(**asked).choices
    assert (told.message.content, told.finish_reason) == ("Wait. ", "stop")


@pytest.mark.parametrize("streamed", [False, True])
def test_log_probabilities_are_of_the_answer(oai: openai.OpenAI, script: Script, streamed: bool) -> None:
    """They stood in the wrong chunks, and those of markers, reasoning and calls beside them."""
    script.say(CALLED[0])
    asked: Any = {"model": NAME, "messages": ASK, "tools": [CHAT_TOOL], "logprobs": True}
    if not streamed:
        (choice,) = oai.chat.completions.create(**asked).choices
        assert choice.logprobs and choice.logprobs.content
        # Its last token ends with the line break before the call, which is no part of the answer.
        assert "".join(entry.token for entry in choice.logprobs.content) == "Let me look.\n"
        return
    chunks = [chunk.choices[0] for chunk in oai.chat.completions.create(**asked, stream=True)]
    told = [(chunk.delta.content, chunk.logprobs.content or []) for chunk in chunks if chunk.logprobs]
    assert not any(entries for content, entries in told if content is None)
    texts = [(content, "".join(entry.token for entry in entries)) for content, entries in told if content]
    assert texts and all(tokens == content for content, tokens in texts[:-1])
    assert "".join(entry.token for _, entries in told for entry in entries) == "Let me look.\n"


# ------------------------------------------------------------------ Responses


def test_a_response_with_a_parsed_text(oai: openai.OpenAI, script: Script) -> None:
    script.say(thought("warm?") + WARM)
    response = oai.responses.parse(model=NAME, input=ASKED, text_format=Warmth)
    assert response.output_parsed == Warmth(degrees=18, sure=True)
    with oai.responses.stream(model=NAME, input=ASKED, text_format=Warmth) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_parsed == Warmth(degrees=18, sure=True)
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_calls_a_tool_and_takes_its_result(
    oai: openai.OpenAI, script: Script, streamed: bool
) -> None:
    script.say(*CALLED)
    tool = {"type": "function", "name": "forecast", "strict": True, **_schema()}
    asked: Any = {"model": NAME, "tools": [tool]}
    conversation: Any = [{"role": "user", "content": ASKED}]
    if streamed:
        with oai.responses.stream(**asked, input=conversation) as stream:
            stream.until_done()
            response: Any = stream.get_final_response()
    else:
        response = oai.responses.parse(**asked, input=conversation)
    reasoning, message, called = response.output
    assert (reasoning.type, message.type, called.type) == ("reasoning", "message", "function_call")
    assert json.loads(called.arguments) == {"city": "Bern", "days": 2}
    items = [item.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for item in response.output]
    result = {"type": "function_call_output", "call_id": called.call_id, "output": "18 degrees"}
    answered = oai.responses.create(**asked, input=[*conversation, *items, result])
    assert answered.output_text == ANSWER
    assert answered.usage.input_tokens_details.cached_tokens > 100


def _schema() -> dict[str, Any]:
    function = CHAT_TOOL["function"]
    return {name: function[name] for name in ("description", "parameters")}


# ------------------------------------------------------------------ Messages


def test_a_message_with_a_parsed_text(claude: anthropic.Anthropic, script: Script) -> None:
    script.say(thought("warm?") + WARM)
    asked: Any = {"model": NAME, "max_tokens": 500, "messages": ASK, "output_format": Warmth}
    assert claude.messages.parse(**asked).parsed_output == Warmth(degrees=18, sure=True)
    with claude.messages.stream(**asked) as stream:
        assert stream.get_final_message().parsed_output == Warmth(degrees=18, sure=True)
    script.say("Warm.")
    with pytest.raises(anthropic.InternalServerError, match="the grammar forbids 'W'"):
        claude.messages.parse(**asked)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_tool_runner_of_messages(claude: anthropic.Anthropic, script: Script, streamed: bool) -> None:
    script.say(*CALLED)
    asked: list[tuple[str, int]] = []

    @anthropic.beta_tool
    def forecast(city: str, days: int) -> str:
        """How the weather will be.

        Args:
            city: Where.
            days: From now on.
        """
        asked.append((city, days))
        return "18 degrees"

    runner: Any = claude.beta.messages.tool_runner(
        model=NAME, max_tokens=500, messages=ASK, tools=[forecast], stream=streamed
    )
    last = None
    for turn in runner:
        last = turn.get_final_message() if streamed else turn
    assert asked == [("Bern", 2)] and last is not None
    assert last.content[0].text == ANSWER and last.stop_reason == "end_turn"
    assert last.usage.cache_read_input_tokens > 100


def test_a_streamed_message_in_events(claude: anthropic.Anthropic, script: Script) -> None:
    script.say(CALLED[0])
    tool: Any = {"name": "forecast", "input_schema": _schema()["parameters"]}
    asked: Any = {"model": NAME, "max_tokens": 500, "messages": ASK, "tools": [tool]}
    with claude.messages.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_message()
    assert {"thinking", "text", "input_json", "content_block_stop", "message_stop"} <= kinds
    thinking, text, called = message.content
    assert (thinking.thinking, text.text) == ("I should look.", "Let me look.")
    assert thinking.signature, "pydantic-ai gives a block without one back as a user's message"
    assert called.input == {"city": "Bern", "days": 2} and message.stop_reason == "tool_use"
    counted = claude.messages.count_tokens(model=NAME, messages=ASK, tools=[tool]).input_tokens
    assert counted == message.usage.input_tokens + message.usage.cache_read_input_tokens
    assert counted > claude.messages.count_tokens(model=NAME, messages=ASK).input_tokens
    assert counted == claude.beta.messages.count_tokens(model=NAME, messages=ASK, tools=[tool]).input_tokens


def test_an_answer_that_the_client_has_begun_goes_on(claude: anthropic.Anthropic, script: Script) -> None:
    script.say("18 degrees.")
    begun = [*ASK, {"role": "assistant", "content": "It is "}]
    message = claude.messages.create(model=NAME, max_tokens=50, messages=begun)
    assert message.content[0].text == "18 degrees."
    counted = claude.messages.count_tokens(model=NAME, messages=begun).input_tokens
    assert counted == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_what_is_for_anthropics_accounts_is_not_told_to_the_model(claude: anthropic.Anthropic) -> None:
    """It differs between sessions of Claude Code, and would keep them from sharing what follows."""
    told: Any = {"type": "text", "text": "Be short."}
    billing: Any = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.363;"}
    counted = [
        claude.messages.count_tokens(model=NAME, messages=ASK, system=system).input_tokens
        for system in ([told], [billing, told])
    ]
    assert counted[0] == counted[1]
