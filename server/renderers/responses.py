"""Renders responses of ``/v1/responses``, OpenAI's newer API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import UNSET, UnsetType

from turnout.server.generation.generation import Generation
from turnout.server.http.errors import error_body
from turnout.server.protocol.response_tools import OfferedTool
from turnout.server.renderers.chat_parts import call_id
from turnout.server.renderers.renderer import Renderer, named_event, parts_of
from turnout.text.choice_text import TextDelta
from turnout.text.output.events import Event, Reasoning, Text, ToolArguments, ToolBegin, ToolEnd, ToolInput

__all__ = ["Keeper", "ResponseBody", "ResponsesRenderer"]

Item = dict[str, Any]
PART_OF = {"message": "output_text", "reasoning": "reasoning_text"}
"""The type of the one part of an item that has parts."""
TEXTS = (Text, Reasoning)
CALLS = {
    "function_call": ("fc", "arguments", "function_call_arguments"),
    "custom_tool_call": ("ctc", "input", "custom_tool_call_input"),
}
"""What ids of calls begin with, the field of what a tool is called with, and what events call that."""


class ResponseBody(msgspec.Struct):
    """A response's body."""

    id: str
    object: str
    created_at: int
    status: str
    model: str
    output: list[Item]
    usage: Item | None
    error: Item | None
    incomplete_details: Item | None
    instructions: str | None
    max_output_tokens: int | None
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: Item
    store: bool
    temperature: float | None
    text: Item
    tool_choice: Any
    tools: list[Item]
    top_p: float | None
    truncation: str
    user: str | None
    metadata: dict[str, str]
    background: bool | UnsetType = UNSET
    warnings: list[dict[str, str]] | UnsetType = UNSET
    """What of the request was left out, and why."""


Keeper = Callable[[ResponseBody], Awaitable[bool]]
"""Stores a response that has ended, and says whether it is stored."""


@dataclass
class ResponsesRenderer(Renderer):
    """The one choice as items: reasoning, a message, calls."""

    id: str
    model: str
    created: int
    echoed: Mapping[str, Any]
    """The fields of the response that repeat the request's."""
    tools: Mapping[str, OfferedTool]
    """What the model may call, by the names that it calls them."""
    keeper: Keeper | None = None
    """None: the response is not stored."""
    store: bool = False
    """What the response says of that."""
    _items: list[Item] = field(default_factory=list, init=False)
    """The items so far; the last may be open."""
    _open: bool = field(default=False, init=False)
    _number: int = field(default=-1, init=False)
    """Of the last event."""
    _ended: TextDelta | None = field(default=None, init=False)
    _whole: ResponseBody | None = field(default=None, init=False)

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> ResponseBody:
        (choice,) = choices
        for event in parts_of(choice, generation):
            self._part(event)
        self._close(_status(choice))
        self._whole = self._body(choice, generation)
        return self._whole

    async def keep(self, generation: Generation) -> None:
        if self.keeper is not None:
            body = self._whole or self.ended(generation)
            self.store = body.store = await self.keeper(body)

    def ended(self, generation: Generation) -> ResponseBody:
        """The response whose deltas have all been rendered."""
        return self._body(self._ended, generation)

    def begun(self, generation: Generation) -> ResponseBody:
        """The response while nothing has been generated."""
        return self._body(None, generation)

    def broken_off(self, status: str, generation: Generation, reason: str | None = None) -> ResponseBody:
        """A response that did not end by itself: `cancelled`, or `failed` for a reason."""
        error = None if reason is None else {"code": "server_error", "message": reason}
        return msgspec.structs.replace(self._body(None, generation), status=status, error=error)

    def opening(self, choice: int, generation: Generation) -> Iterable[bytes]:
        begun = self._body(None, generation)
        return (
            self._event("response.created", response=begun),
            self._event("response.in_progress", response=begun),
        )

    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        events = b"".join(map(self._part, parts_of(delta, generation)))
        if delta.finish_reason is not None:
            self._ended = delta
            events += self._close(_status(delta))
        return events

    def closing(self, generation: Generation) -> bytes:
        return self.last(self.ended(generation))

    def last(self, body: ResponseBody) -> bytes:
        """The event of a response's end, whatever that is; the API has none for one that is cancelled."""
        status = "failed" if body.status == "cancelled" else body.status
        return self._event(f"response.{status}", response=body)

    def error(self, error: Exception) -> bytes:
        told = error_body(error).error
        return self._event("error", code=told.code, message=told.message, param=told.param)

    def end(self) -> bytes:
        return b""

    # -------------------------------------------------------------- items

    def _part(self, event: Event) -> bytes:
        """The events of a part of the output, which is added to the items."""
        if not isinstance(event, TEXTS):
            return self._of_call(event)
        kind = "reasoning" if isinstance(event, Reasoning) else "message"
        before = b""
        if not self._open or self._items[-1]["type"] != kind:
            before = self._close() + self._begin(_empty(kind)) + self._begin_part()
        self._items[-1]["content"][0]["text"] += event.text
        name = f"response.{PART_OF[kind]}.delta"
        more: Item = {"logprobs": []} if kind == "message" else {}
        return before + self._of_item(name, content_index=0, delta=event.text, **more)

    def _of_call(self, event: ToolBegin | ToolArguments | ToolInput | ToolEnd) -> bytes:
        if isinstance(event, ToolEnd):
            return self._close()
        if isinstance(event, ToolBegin):
            kind = "custom_tool_call" if event.custom else "function_call"
            prefix, key, _ = CALLS[kind]
            called = {"type": kind, "call_id": call_id(), **self._names(event.name)}
            return self._close() + self._begin({"id": f"{prefix}_{uuid4().hex}", **called, key: ""})
        item = self._items[-1]
        _, key, told = CALLS[item["type"]]
        item[key] += event.text
        return self._of_item(f"response.{told}.delta", delta=event.text)

    def _names(self, name: str) -> Item:
        tool = self.tools.get(name)
        if tool is None or tool.namespace is None:
            return {"name": name}
        return {"name": tool.name, "namespace": tool.namespace["name"]}

    def _begin(self, item: Item) -> bytes:
        self._items.append({**item, "status": "in_progress"})
        self._open = True
        added = {**self._items[-1], "content": []} if "content" in item else self._items[-1]
        return self._event("response.output_item.added", output_index=self._index, item=added)

    def _begin_part(self) -> bytes:
        (part,) = self._items[-1]["content"]
        return self._of_item("response.content_part.added", content_index=0, part=part)

    def _close(self, status: str = "completed") -> bytes:
        """The events that end the open item, if one is."""
        if not self._open:
            return b""
        self._open = False
        item = self._items[-1]
        item["status"] = status
        if item["type"] in CALLS:
            _, key, told = CALLS[item["type"]]
            names = {"name": item["name"]} if item["type"] == "function_call" else {}
            done = self._of_item(f"response.{told}.done", **names, **{key: item[key]})
        else:
            (part,) = item["content"]
            more: Item = {"logprobs": []} if item["type"] == "message" else {}
            name = f"response.{PART_OF[item['type']]}.done"
            done = self._of_item(name, content_index=0, text=part["text"], **more)
            done += self._of_item("response.content_part.done", content_index=0, part=part)
        return done + self._event("response.output_item.done", output_index=self._index, item=item)

    @property
    def _index(self) -> int:
        return len(self._items) - 1

    # -------------------------------------------------------------- events

    def _of_item(self, name: str, /, **fields: Any) -> bytes:
        return self._event(name, item_id=self._items[-1]["id"], output_index=self._index, **fields)

    def _event(self, name: str, /, **fields: Any) -> bytes:
        self._number += 1
        content = {"type": name, "sequence_number": self._number, **fields}
        return named_event(name, content)

    def _body(self, ended: TextDelta | None, generation: Generation) -> ResponseBody:
        """The response; before its end `ended` is None."""
        status = "in_progress" if ended is None else _status(ended)
        return ResponseBody(
            id=self.id,
            object="response",
            created_at=self.created,
            status=status,
            model=self.model,
            output=self._items if ended is not None else [],
            usage=None if ended is None else _usage(generation),
            error=None,
            incomplete_details={"reason": "max_output_tokens"} if status == "incomplete" else None,
            store=self.store,
            truncation="disabled",
            **self.echoed,
        )


def _status(ended: TextDelta) -> str:
    """Of a response at its end, and of the item that is open then: one that ended before was not cut."""
    return "incomplete" if ended.finish_reason == "length" else "completed"


def _empty(kind: str) -> Item:
    part: Item = {"type": PART_OF[kind], "text": ""}
    if kind == "reasoning":
        return {"id": f"rs_{uuid4().hex}", "type": kind, "summary": [], "content": [part]}
    part |= {"annotations": [], "logprobs": []}
    return {"id": f"msg_{uuid4().hex}", "type": kind, "role": "assistant", "content": [part]}


def _usage(generation: Generation) -> Item:
    prompt, output = generation.prompt_tokens, generation.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": generation.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": generation.reasoning_tokens or 0},
        "total_tokens": prompt + output,
    }
