"""LangChain's own loop with tools."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from script import Script, call, thought

URL = os.environ["TURNOUT_URL"]
NAME = os.environ["TURNOUT_MODEL"]
MODELS = {
    "chat": lambda: ChatOpenAI(model=NAME, base_url=f"{URL}/v1", api_key="none"),
    "responses": lambda: ChatOpenAI(model=NAME, base_url=f"{URL}/v1", api_key="none", use_responses_api=True),
    "messages": lambda: ChatAnthropic(model=NAME, base_url=URL, api_key="none"),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", MODELS)
def test_an_agent(api: str, streamed: bool) -> None:
    Script(Path(os.environ["TURNOUT_SCRIPT"])).say(
        thought("I must look twice.")
        + "Let me look.\n"
        + call("weather", city="Bern")
        + call("weather", city="Thun"),
        thought("Both are known.") + "It is sunny.",
    )
    asked: list[str] = []

    def weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return "sunny"

    agent = create_agent(MODELS[api](), tools=[weather])
    question = {"messages": [("user", "Is it sunny?")]}
    if streamed:
        *_, state = agent.stream(question, stream_mode="values")
    else:
        state = agent.invoke(question)
    assert state["messages"][-1].text == "It is sunny." and sorted(asked) == ["Bern", "Thun"]
