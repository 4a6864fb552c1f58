"""openai-agents over chat and over Responses: tools, streams, structured answers, hand-offs, sessions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from agents import (
    Agent,
    CustomTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.shared import Reasoning
from pydantic import BaseModel
from script import Script, call, rule, thought

NAME = os.environ["TURNOUT_MODEL"]
SCRIPT = Script(Path(os.environ["TURNOUT_SCRIPT"]))
ANSWER = "It is sunny in Bern."


class Weather(BaseModel):
    city: str
    sunny: bool


@pytest.fixture(params=[OpenAIChatCompletionsModel, OpenAIResponsesModel])
async def model(request):
    set_tracing_disabled(True)
    async with AsyncOpenAI(
        base_url=f"{os.environ['TURNOUT_URL']}/v1",
        api_key="none",
        max_retries=0,
        _strict_response_validation=True,
    ) as client:
        yield request.param(NAME, client)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def weather(asked: list[str]):
    @function_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return "sunny"

    return weather


LOOP = (
    thought("I must look twice.")
    + "Let me look.\n"
    + call("weather", city="Bern")
    + call("weather", city="Thun"),
    thought("Both are known.") + ANSWER,
)


async def test_a_loop_with_two_calls_at_once(model, weather, asked) -> None:
    SCRIPT.say(*LOOP)
    result = await Runner.run(Agent("weather", tools=[weather], model=model), "Is it sunny?")
    assert result.final_output == ANSWER and asked == ["Bern", "Thun"]
    assert result.context_wrapper.usage.requests == 2
    assert result.context_wrapper.usage.input_tokens_details.cached_tokens > 100


async def test_a_streamed_loop(model, weather, asked) -> None:
    SCRIPT.say(*LOOP)
    result = Runner.run_streamed(Agent("weather", tools=[weather], model=model), "Is it sunny?")
    kinds = [event.type async for event in result.stream_events()]
    assert result.final_output == ANSWER and asked == ["Bern", "Thun"]
    assert {"raw_response_event", "run_item_stream_event"} <= set(kinds)


@pytest.mark.parametrize("choice", ["required", "weather"])
async def test_a_call_that_must_be_made(model, weather, asked, choice: str) -> None:
    SCRIPT.say(call("weather", city="Bern"), ANSWER)
    settings = ModelSettings(tool_choice=choice, parallel_tool_calls=False, max_tokens=500)
    agent = Agent("weather", tools=[weather], model=model, model_settings=settings)
    assert (await Runner.run(agent, "Is it sunny?")).final_output == ANSWER and asked == ["Bern"]


async def test_a_structured_answer_after_a_tool(model, weather, asked) -> None:
    SCRIPT.say(call("weather", city="Bern"), '{"city": "Bern", "sunny": true}')
    agent = Agent("weather", tools=[weather], model=model, output_type=Weather)
    assert (await Runner.run(agent, "Is it sunny?")).final_output == Weather(city="Bern", sunny=True)
    assert asked == ["Bern"]


async def test_a_handoff(model, weather, asked) -> None:
    SCRIPT.play(
        rule(ANSWER, "<tool_response>\nsunny"),
        rule(call("weather", city="Bern"), "You know the weather"),
        rule(call("transfer_to_weather"), "You know who knows"),
    )
    expert = Agent("weather", instructions="You know the weather.", tools=[weather], model=model)
    clerk = Agent("clerk", instructions="You know who knows.", handoffs=[expert], model=model)
    result = await Runner.run(clerk, "Is it sunny?")
    assert result.final_output == ANSWER and result.last_agent is expert and asked == ["Bern"]


async def test_a_session_of_several_turns(model, weather, asked) -> None:
    SCRIPT.say(LOOP[0], LOOP[1], "You asked about Bern.")
    session = SQLiteSession("one")
    agent = Agent("weather", instructions="Be short.", tools=[weather], model=model)
    first = await Runner.run(agent, "Is it sunny?", session=session)
    second = await Runner.run(agent, "What did I ask?", session=session)
    assert (first.final_output, second.final_output) == (ANSWER, "You asked about Bern.")
    assert second.context_wrapper.usage.input_tokens_details.cached_tokens > 150


async def test_reasoning_with_an_effort(model) -> None:
    SCRIPT.say(thought("Hm.") + "Yes.")
    settings = ModelSettings(reasoning=Reasoning(effort="low", summary="auto"), temperature=0.5, top_p=0.9)
    agent = Agent("thinker", model=model, model_settings=settings)
    result = await Runner.run(agent, "Is it so?")
    assert result.final_output == "Yes."
    assert any(item.type == "reasoning_item" for item in result.new_items)


async def test_the_server_keeps_the_conversation(model, weather, asked) -> None:
    """Over Responses; with chat, which keeps none, the loop sends all of it."""
    SCRIPT.say(LOOP[0], LOOP[1], "You asked about Bern.")
    kept = isinstance(model, OpenAIResponsesModel)
    agent = Agent("weather", instructions="Be short.", tools=[weather], model=model)
    first = await Runner.run(agent, "Is it sunny?", auto_previous_response_id=kept)
    assert first.final_output == ANSWER and bool(first.last_response_id) == kept
    then = [*first.to_input_list(), {"role": "user", "content": "What did I ask?"}]
    second = await Runner.run(
        agent,
        "What did I ask?" if kept else then,
        previous_response_id=first.last_response_id if kept else None,
    )
    assert second.final_output == "You asked about Bern."
    assert second.context_wrapper.usage.input_tokens_details.cached_tokens > 150


PATCH = '*** Begin\n+ "é" 😀\n*** End\n'


@pytest.mark.parametrize("model", [OpenAIResponsesModel], indirect=True)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_custom_tool(model, weather, asked, streamed: bool) -> None:
    """The SDK has them over Responses alone."""
    SCRIPT.say(call("apply", input=PATCH) + call("weather", city="Bern"), ANSWER)

    async def apply(_, patch: str) -> str:
        asked.append(patch)
        return "Applied."

    agent = Agent("mender", tools=[CustomTool("apply", "Applies a patch.", apply), weather], model=model)
    if streamed:
        result = Runner.run_streamed(agent, "Mend it.")
        deltas = [
            event.data.delta
            async for event in result.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.custom_tool_call_input.delta"
        ]
        assert "".join(deltas) == PATCH
    else:
        result = await Runner.run(agent, "Mend it.")
    assert result.final_output == ANSWER and sorted(asked) == [PATCH, "Bern"]
