"""pydantic-ai over chat, Responses and Messages: tools, streams, thinking, answers of a form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, PromptedOutput, ThinkingPart, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from script import Script, call, thought

URL = os.environ["TURNOUT_URL"]
NAME = os.environ["TURNOUT_MODEL"]
SCRIPT = Script(Path(os.environ["TURNOUT_SCRIPT"]))
ANSWER = "It is sunny in Bern."
BERN = '{"city": "Bern", "sunny": true}'


class Weather(BaseModel):
    city: str
    sunny: bool


@pytest.fixture(params=["chat", "responses", "messages"])
async def model(request):
    strict = {"api_key": "none", "max_retries": 0, "_strict_response_validation": True}
    if request.param == "messages":
        async with AsyncAnthropic(base_url=URL, **strict) as client:
            yield AnthropicModel(
                NAME,
                provider=AnthropicProvider(anthropic_client=client),
                profile=AnthropicModelProfile(supports_json_schema_output=True),
            )
    else:
        kind = OpenAIChatModel if request.param == "chat" else OpenAIResponsesModel
        async with AsyncOpenAI(base_url=f"{URL}/v1", **strict) as client:
            yield kind(NAME, provider=OpenAIProvider(openai_client=client))


def agent(model, **options) -> tuple[Agent, list[str]]:
    """An agent that knows the weather, and which cities it looked at."""
    asked: list[str] = []
    made = Agent(model, **options)

    @made.tool_plain
    def weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        if city == "Brn":
            raise ModelRetry("there is no Brn")
        return "sunny"

    return made, asked


LOOP = (
    thought("I must look twice.")
    + "Let me look.\n"
    + call("weather", city="Bern")
    + call("weather", city="Thun"),
    thought("Both are known.") + ANSWER,
)


async def test_a_loop_with_two_calls_at_once(model) -> None:
    SCRIPT.say(*LOOP)
    made, asked = agent(model, instructions="Be short.")
    result = await made.run("Is it sunny?")
    assert result.output == ANSWER and sorted(asked) == ["Bern", "Thun"]
    usage = result.usage() if callable(result.usage) else result.usage
    assert usage.requests == 2 and usage.tool_calls == 2 and usage.cache_read_tokens > 100
    thoughts = [
        part.content or "".join(part.provider_details["raw_content"])
        for each in result.all_messages()
        for part in each.parts
        if isinstance(part, ThinkingPart)
    ]
    assert thoughts == ["I must look twice.", "Both are known."]


async def test_a_streamed_loop(model) -> None:
    """Of a call alone: it takes the first text for the answer."""
    SCRIPT.say(thought("I must look.") + call("weather", city="Bern") + call("weather", city="Thun"), ANSWER)
    made, asked = agent(model)
    async with made.run_stream("Is it sunny?") as stream:
        texts = [text async for text in stream.stream_text(delta=True, debounce_by=None)]
    assert "".join(texts) == ANSWER and len(texts) > 2 and sorted(asked) == ["Bern", "Thun"]


async def test_a_call_is_tried_again(model) -> None:
    SCRIPT.say(call("weather", city="Brn"), call("weather", city="Bern"), ANSWER)
    made, asked = agent(model)
    assert (await made.run("Is it sunny?")).output == ANSWER and asked == ["Brn", "Bern"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", [ToolOutput, NativeOutput, PromptedOutput])
async def test_a_structured_answer(model, way, streamed: bool) -> None:
    final = call("final_result", city="Bern", sunny=True) if way is ToolOutput else BERN
    SCRIPT.say(call("weather", city="Bern"), final)
    made, asked = agent(model, output_type=way(Weather))
    if streamed:
        async with made.run_stream("Is it sunny?") as stream:
            output = await stream.get_output()
    else:
        output = (await made.run("Is it sunny?")).output
    assert output == Weather(city="Bern", sunny=True) and asked == ["Bern"]


async def test_a_conversation_goes_on(model) -> None:
    SCRIPT.say(*LOOP, "You asked about Bern.")
    made, _ = agent(model, system_prompt="Be short.")
    first = await made.run("Is it sunny?")
    second = await made.run("What did I ask?", message_history=first.all_messages())
    assert second.output == "You asked about Bern."


async def test_settings(model) -> None:
    SCRIPT.say("One, two, three, four, five, six, seven.")
    made, _ = agent(model)
    settings = {"max_tokens": 6, "temperature": 0.3, "top_p": 0.9, "seed": 3, "parallel_tool_calls": False}
    result = await made.run("Count.", model_settings=settings)
    assert result.output.startswith("One") and "seven" not in result.output
