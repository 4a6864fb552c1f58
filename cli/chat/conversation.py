"""A conversation with a server: what was said, and the tools that its model may use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from turnout.cli.chat.answer import Answer, Call
from turnout.cli.chat.client import ChatClient, ContextExceeded, Message
from turnout.cli.chat.toolbox import Toolbox

__all__ = ["Conversation", "Screen"]

MOST_ROUNDS = 16
"""Rounds of calls until a prompt is answered; a model may call for ever."""
STOPPED = "The user stopped this."
DECLINED = "The user declined to run this."


class Screen(Protocol):
    """Where a conversation shows itself."""

    def text(self, piece: str) -> None:
        """Shows a piece of the answer."""

    def thought(self, piece: str) -> None:
        """Shows a piece of the reasoning."""

    def allows(self, call: Call) -> bool:
        """Shows a call; returns whether it may run."""

    def result(self, text: str) -> None:
        """Shows what a call gave."""

    def cut(self, reason: str) -> None:
        """Shows that the answer is not whole; `reason` is the server's word for why."""

    def gave_up(self, rounds: int) -> None:
        """Shows that the model may not call any more."""


@dataclass
class Conversation:
    """The messages so far, and the server that answers."""

    client: ChatClient
    parameters: Mapping[str, Any]
    system: str | None = None
    tools: Toolbox | None = None
    history: list[Message] = field(default_factory=list)

    def reset(self) -> None:
        self.history.clear()

    def ask(self, prompt: str, screen: Screen) -> bool:
        """Shows the answer as it arrives, and runs what it calls. Returns False if Ctrl-C cut it short.

        The prompt and all that follows, even a cut answer, join the history. An error leaves it unchanged.
        Raises ChatError.
        """
        said: list[Message] = [{"role": "user", "content": prompt}]
        complete = False
        for _ in range(MOST_ROUNDS):
            answer, complete = self._answer(said, screen)
            said.append(answer.message(calls=complete))
            if not complete or not answer.calls:
                break
            results, complete = self._run(answer.calls, screen)
            said += results
            if not complete:
                break
        else:
            screen.gave_up(MOST_ROUNDS)
        self.history += said
        return complete

    def _answer(self, said: list[Message], screen: Screen) -> tuple[Answer, bool]:
        """The answer to what was said, and whether it is complete."""
        begin = [{"role": "system", "content": self.system}] if self.system else []
        parameters = {**self.parameters, "tools": self.tools.described} if self.tools else self.parameters
        answer = Answer()
        try:
            with closing(self.client.answer([*begin, *self.history, *said], parameters)) as pieces:
                for piece in pieces:
                    answer.add(piece)
                    if piece.thought:
                        screen.thought(piece.thought)
                    if shown := (piece.content or "") + (piece.refusal or ""):
                        screen.text(shown)
        except KeyboardInterrupt:
            return answer, False
        except ContextExceeded as error:
            if not self.history:
                raise
            raise ContextExceeded(f"the conversation fills the model's context: {error}") from None
        if answer.cut is not None:
            screen.cut(answer.cut)
        return answer, True

    def _run(self, calls: list[Call], screen: Screen) -> tuple[list[Message], bool]:
        """The results of calls, and whether all were answered: Ctrl-C stops one, and those after it."""
        results: list[Message] = []
        complete = True
        for call in calls:
            result = STOPPED
            if complete:
                try:
                    result = self._result(call, screen)
                except KeyboardInterrupt:
                    complete = False
            results.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result})
        return results, complete

    def _result(self, call: Call, screen: Screen) -> str:
        if self.tools is None or not screen.allows(call):
            return DECLINED
        result = self.tools.run(call)
        screen.result(result)
        return result
