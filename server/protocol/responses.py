"""The responses of OpenAI's APIs, as msgspec structs, since one is encoded for each token.

Fields that are unset are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "CalledCustom",
    "CalledFunction",
    "ChatChoice",
    "ChatChunkChoice",
    "ChatCompletion",
    "ChatDelta",
    "ChatLogprobs",
    "ChatMessage",
    "ChatTokenLogprob",
    "Completion",
    "CompletionChoice",
    "CompletionLogprobs",
    "CompletionTokensDetails",
    "Envelope",
    "ModelCard",
    "ModelList",
    "PromptLogprobs",
    "PromptTokensDetails",
    "RankedLogprob",
    "TimedEnvelope",
    "TimingReport",
    "Timings",
    "ToolCall",
    "ToolCallDelta",
    "TopLogprob",
    "Usage",
    "WireChoice",
]


class PromptTokensDetails(msgspec.Struct):
    """How the prompt's tokens were served."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    """What the tokens generated are."""

    reasoning_tokens: int
    """Those of reasoning, without the markers around it."""


class Usage(msgspec.Struct):
    """The tokens of a request."""

    prompt_tokens: int
    """Tokens of the prompts, each prompt counted once whatever `n` is. Tokens of the chat template count."""
    completion_tokens: int
    """Tokens generated over all choices. Tokens of a stop string and the token that stopped a choice count,
    though they are not shown; tokens computed after them do not. With `best_of` all choices count, also
    those that are not returned; of beams those that are returned."""
    total_tokens: int
    """The sum."""
    prompt_tokens_details: PromptTokensDetails
    """`cached_tokens`: prompt tokens whose KV memory was found instead of computed. Only whole blocks of
    `--kv paged` are shared."""
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET
    """`reasoning_tokens`: of the tokens generated those of reasoning. Of models that reason, in chat."""


class CompletionLogprobs(msgspec.Struct):
    """Lists of equal length, with an entry for each token."""

    tokens: Sequence[str]
    token_logprobs: Sequence[float | None]
    """None for the first token of an echoed prompt."""
    top_logprobs: Sequence[dict[str, float] | None]
    text_offset: Sequence[int]


class RankedLogprob(msgspec.Struct):
    """A token's log-probability in vLLM's form."""

    logprob: float
    rank: int | None
    """1 is the most likely; None for a token that is not among the most likely asked for."""
    decoded_token: str


PromptLogprobs = Sequence[dict[str, RankedLogprob] | None]
"""For each prompt token, by token id: itself and the most likely. None for the first."""


class CompletionChoice(msgspec.Struct):
    """A choice, or a part of one, in a response to completions."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | UnsetType | None = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    cumulative_logprob: float | UnsetType = UNSET
    beam_score: float | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET


class TopLogprob(msgspec.Struct):
    """One of the most likely tokens at a position."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprob(msgspec.Struct):
    """A token's log-probability in a response to a chat."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """The log-probabilities of a message."""

    content: Sequence[ChatTokenLogprob]
    refusal: None = None


class CalledFunction(msgspec.Struct):
    """The function of a tool call, or a part of it."""

    name: str | UnsetType = UNSET
    arguments: str = ""
    """JSON, as the model wrote it."""


class CalledCustom(msgspec.Struct):
    """The custom tool of a call, or a part of it."""

    name: str | UnsetType = UNSET
    input: str = ""


class ToolCall(msgspec.Struct):
    """A tool call of a message: of a function, or of a custom tool."""

    id: str
    function: CalledFunction | UnsetType = UNSET
    custom: CalledCustom | UnsetType = UNSET
    type: str = "function"
    """`function` or `custom`."""


class ToolCallDelta(msgspec.Struct):
    """A part of a tool call in a streamed message.

    OpenAI streams those of custom tools in this form, though its specification lists functions alone.
    """

    index: int
    function: CalledFunction | UnsetType = UNSET
    custom: CalledCustom | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class ChatMessage(msgspec.Struct):
    """A message of the assistant."""

    role: str
    content: str | None
    """None in a message that has tool calls and no text."""
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    """What the model wrote before its answer."""
    reasoning: str | UnsetType = UNSET
    """The same, by the name that vLLM gives it."""
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    """A choice in a response to a chat."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | UnsetType | None = UNSET
    cumulative_logprob: float | UnsetType = UNSET
    beam_score: float | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET


class ChatDelta(msgspec.Struct):
    """A part of a message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct):
    """A part of a choice in a streamed response to a chat."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | UnsetType | None = UNSET
    cumulative_logprob: float | UnsetType = UNSET
    beam_score: float | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET


WireChoice = CompletionChoice | ChatChoice | ChatChunkChoice


class Envelope(msgspec.Struct):
    """A response or, streamed, a chunk of it."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str | None
    """The same for engines that give the same tokens."""
    choices: list[WireChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    """In a response to a chat. Completions have them in each choice, since there may be several prompts."""
    prompt_token_ids: list[int] | UnsetType = UNSET
    """In a response to a chat, as `prompt_logprobs`."""


class Completion(Envelope, kw_only=True):
    """A response to completions."""

    choices: list[CompletionChoice]  # type: ignore[assignment]


class ChatCompletion(Envelope, kw_only=True):
    """A response to a chat."""

    choices: list[ChatChoice]  # type: ignore[assignment]


class TimingReport(msgspec.Struct):
    """When a prompt's request was scheduled, answered and preempted, in milliseconds after its arrival."""

    queued_ms: float | None
    """When the request was first admitted: how long it waited."""
    first_token_ms: float | None
    """When its first token was computed."""
    finished_ms: float | None
    """When its last choice ended."""
    preempted_ms: list[float]
    """When it was preempted: it lost its memory and waited again. A list, mostly empty."""


Timings = TimingReport | list[TimingReport | None] | None
"""A list where there are several prompts; None where the engine did not report it."""


class TimedEnvelope(Envelope, kw_only=True):
    """An envelope with the timing that a request asked for."""

    timing: Timings


class ModelCard(msgspec.Struct):
    """A model, as ``/v1/models`` lists it."""

    id: str
    created: int
    max_model_len: int | None
    """Null: not known before it has been loaded."""
    object: str = "model"
    owned_by: str = "turnout"
    state: str = "loaded"
    """`loaded`; `unloaded`: its next request loads it; `loading`; `unloading`; `restarting`: its engine died,
    and another is starting; `failed`: it was given up, or could not be loaded."""
    progress: float | UnsetType = UNSET
    """While it is loaded: the part of its weights that are in memory, from 0 to 1."""
    reason: str | UnsetType = UNSET
    """Why it has failed."""
    aliases: list[str] = []
    """Further names that requests may give it."""


class ModelList(msgspec.Struct):
    """The models that are served."""

    data: list[ModelCard]
    object: str = "list"
