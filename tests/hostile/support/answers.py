"""What is compared of an answer: texts, calls, logprobs and why it ended, no name that differs each time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["Answer", "error_of", "is_last", "of_body", "of_events"]

Json = dict[str, Any]
Answer = dict[str, Any]
"""Plain data, by choice or part."""


def of_body(path: str, body: Json) -> Answer:
    if path == "/v1/messages":
        return {"blocks": [_block(block) for block in body["content"]], "end": body["stop_reason"]}
    if path == "/v1/responses":
        return {"items": [_item(item) for item in body["output"]], "end": body["status"]}
    if path not in ("/v1/completions", "/v1/chat/completions"):
        return body
    return {
        str(choice["index"]): [
            _text(choice),
            _calls(choice.get("message", {})),
            choice["finish_reason"],
            _logprobs(choice),
        ]
        for choice in body["choices"]
    }


def of_events(path: str, events: Iterable[Json]) -> Answer:
    """As `of_body`, from the events of a whole stream."""
    if path == "/v1/messages":
        return _of_message_events(events)
    if path == "/v1/responses":
        return _of_response_events(events)
    choices: Answer = {}
    for event in events:
        for choice in event["choices"]:
            text, calls, reason, scores = choices.get(str(choice["index"]), ["", [], None, []])
            for call in choice.get("delta", {}).get("tool_calls") or ():
                if call["index"] == len(calls):
                    calls.append([call["function"]["name"], ""])
                calls[call["index"]][1] += call["function"].get("arguments") or ""
            reason, scores = choice["finish_reason"] or reason, scores + _logprobs(choice)
            choices[str(choice["index"])] = [text + _text(choice), calls, reason, scores]
    return choices


def is_last(event: Json) -> bool:
    """Whether nothing but ``[DONE]`` may follow."""
    return event.get("type") in ("message_stop", "response.completed", "response.incomplete")


def error_of(event: Json) -> str | None:
    """The message of an error; None if the event is none."""
    if event.get("type") == "error" and "message" in event:  # of /v1/responses
        return str(event["message"])
    error = event.get("error")
    return None if error is None else str(error["message"])


# ------------------------------------------------------------------ details


def _text(choice: Json) -> str:
    message = choice.get("message") or choice.get("delta")
    text: str = (message.get("content") if message is not None else choice.get("text")) or ""
    return text


def _logprobs(choice: Json) -> list[Any]:
    """Of a completion: its tokens, and the likeliest ones in the place of each."""
    scores = choice.get("logprobs") or {}
    return list(zip(scores.get("tokens", ()), scores.get("top_logprobs") or (), strict=True))


def _calls(message: Json) -> list[list[str]]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [[function["name"], function["arguments"]] for function in functions]


def _block(block: Json) -> list[Any]:
    if block["type"] == "tool_use":
        return ["tool_use", block["name"], block["input"]]
    return [block["type"], block["text"]]


def _of_message_events(events: Iterable[Json]) -> Answer:
    blocks: list[list[Any]] = []
    end = None
    for event in events:
        if event["type"] == "content_block_start":
            block = event["content_block"]
            blocks.append(["tool_use", block["name"], ""] if block["type"] == "tool_use" else ["text", ""])
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[event["index"]][-1] += delta.get("text") or delta.get("partial_json") or ""
        elif event["type"] == "message_delta":
            end = event["delta"]["stop_reason"]
    for block in blocks:
        if block[0] == "tool_use":
            block[2] = _input(block[2])
    return {"blocks": blocks, "end": end}


def _input(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:  # cut short
        return {}


def _item(item: Json) -> list[Any]:
    if item["type"] == "function_call":
        return ["call", item["name"], item["arguments"]]
    return [item["type"], "".join(part["text"] for part in item["content"])]


def _of_response_events(events: Iterable[Json]) -> Answer:
    """The response that the last event brings, whose parts the others have brought too."""
    deltas: dict[int, str] = {}
    response: Json = {"output": [], "status": None}
    for event in events:
        if event["type"].endswith((".output_text.delta", ".function_call_arguments.delta")):
            deltas[event["output_index"]] = deltas.get(event["output_index"], "") + event["delta"]
        response = event.get("response", response)
    answer = of_body("/v1/responses", response)
    texts = [item[-1] for item in answer["items"]]
    return answer if texts == [deltas.get(number, "") for number in range(len(texts))] else {"parts": deltas}
