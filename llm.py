"""Offline use: the engine runs in this process, and completes prompts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from turnout.config import EngineConfig
from turnout.config.engine import MAX_COUNT
from turnout.core.errors import EngineError, RequestError, TurnoutError, map_numbered
from turnout.core.process import bar_disabled
from turnout.core.turns import Turns
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.param_groups import merge_defaults
from turnout.core.types.pooling import NO_TEXT, PoolingParams
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams, concrete_seed
from turnout.text.prompt.given_conversations import Message, given_conversations
from turnout.text.prompt.given_prompts import Given, Prompt, given_prompts, given_texts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from turnout.core.types.messages import Delta
    from turnout.runner.pooling.offline import OfflinePooling
    from turnout.text.choice_text import ChoiceText
    from turnout.text.output.events import Event
    from turnout.text.output.reading.splitter import OutputSplitter
    from turnout.text.prompt.function_tools import Offer
    from turnout.text.prompt.tool_request import ToolRequest
    from turnout.text.split.split_text import SplitText
    from turnout.text.tokenizer import Tokenizer

__all__ = ["LLM", "CompletionOutput", "Logprob", "RequestOutput", "ToolCall"]


@dataclass(frozen=True)
class Logprob:
    """A token's natural log-probability at a position, before temperature and penalties."""

    logprob: float
    rank: int | None
    """1 is the most likely; None for a chosen token that is not among the most likely that were asked for."""
    decoded_token: str


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model calls."""

    id: str
    name: str
    arguments: str
    """A JSON object; only `finish_reason` ``length`` may have cut it short. Of a custom tool: empty."""
    input: str | None = None
    """What a custom tool is called with; None: it is a function."""


@dataclass
class CompletionOutput:
    """One choice of a prompt."""

    index: int
    text: str = ""
    """Of a chat, the answer: without reasoning and calls."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, Logprob]] | None = None
    """For each position the chosen token and the most likely ones, by token id, where asked for."""
    cumulative_logprob: float | None = None
    """The sum over the tokens, where log-probabilities were asked for, with `best_of`, and for beams."""
    beam_score: float | None = None
    """What a beam was ranked by; see `SamplingParams.length_penalty`."""
    finish_reason: str | None = None
    """``stop``, ``length``, or ``tool_calls``: the model waits for their results."""
    stop_reason: str | int | None = None
    reasoning: str = ""
    """Of a chat, what the model thought before the answer."""
    tool_calls: list[ToolCall] = field(default_factory=list)
    """Of a chat with tools."""

    @property
    def message(self) -> dict[str, Any]:
        """The choice as a message, with which a conversation goes on."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [_as_message(call) for call in self.tool_calls]
        return message


@dataclass
class RequestOutput:
    """A prompt and its choices."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = True
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    """For each prompt token itself and the most likely ones, where asked for; None for the first."""


class LLM:
    """A model, and the policies that serve it. Arguments are the fields of `EngineConfig`.

    Calls from several threads take turns: each has the engine alone until its prompts are done. The prompts
    of one call are served together, so one call with many prompts is faster than many calls.

    Raises ConfigError or ModelError for a configuration or a model that cannot work.
    """

    def __init__(self, model: str = "turnout-tiny", **options: Any) -> None:
        from turnout.runner.assembly import build_engine
        from turnout.text.model_format import ModelFormat
        from turnout.text.prompt.template_process import TemplateProcesses
        from turnout.text.tokenizer import load_tokenizer

        # A script waits for all its prompts anyway, so none is refused for their number.
        self.config = EngineConfig(model=model, **{"max_waiting": MAX_COUNT, **options})
        assembled = build_engine(self.config)
        self.engine = assembled.engine
        self.ready = assembled.ready
        self.tokenizer: Tokenizer = load_tokenizer(assembled.folder, self.config.chat_template)
        self._format = ModelFormat(self.tokenizer, self.ready.output_format, self.ready.eos_token_ids)
        self._templates = TemplateProcesses()
        self._turns = Turns()
        self._ids = itertools.count()

    def default_params(self, **given: Any) -> SamplingParams:
        """The default sampling parameters of the checkpoint and the decoding, overridden by `given` ones."""
        return SamplingParams(**merge_defaults(given, self.ready.defaults))

    def generate(
        self,
        prompts: Given | Iterable[Given],
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
        *,
        cache_salt: str = "",
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Complete prompts, given as texts or token ids, together; results are in the prompts' order.

        vLLM's ``{"prompt": text}`` and ``{"prompt_token_ids": ids}`` are prompts, too.

        Requests share computed prefixes only with requests of the same `cache_salt`.

        Raises RequestError, before anything runs, for arguments or a prompt that cannot be served. Where a
        prompt fails while it runs, such as beams that find fewer texts than `n`, the others are finished;
        then RequestError or, if the engine is at fault, EngineError is raised, whose `outputs` has what the
        others became, and None for each that failed. Of several prompts, an error names one by its number,
        counted from 0.
        """
        listed = given_prompts(prompts)
        params = self._params_for(len(listed), sampling_params)
        _check_salt(cache_salt)
        pairs = list(zip(listed, params, strict=True))
        requests = map_numbered("prompt", lambda pair: self._request(*pair, cache_salt), pairs)
        return self._answers("prompt", requests, progress)

    def chat(
        self,
        messages: Iterable[Message] | Iterable[Iterable[Message]],
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
        *,
        tools: Iterable[Offer] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        cache_salt: str = "",
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Answer one conversation or several, each a list of ``{"role": …, "content": …}``.

        A chat template is a program of the model's folder: it runs in a process of its own, in little time
        and memory. Raises RequestError where it takes more, or cannot render a conversation, and what
        `generate` raises.

        tools: functions with type hints and docstrings, or OpenAI's form, also of custom tools; calls are
        valid by construction.
        tool_choice: ``auto``, ``none``, ``required``, a function's name, or OpenAI's form.
        chat_template_kwargs: variables for the chat template, such as ``{"enable_thinking": False}``; not
        those that Turnout sets, such as ``tools``.
        """
        from turnout.text.prompt.function_tools import described
        from turnout.text.prompt.template_variables import given_variables
        from turnout.text.prompt.tool_request import offered_tools

        if self.ready.pooling is not None and not self.ready.pooling.generates:
            raise RequestError(NO_TEXT, "model")
        several = given_conversations(messages)
        offered = offered_tools(None if tools is None else described(tools) or None, tool_choice)
        params = self._params_for(len(several), sampling_params)
        variables = given_variables(chat_template_kwargs)
        _check_salt(cache_salt)
        pairs = list(zip(several, params, strict=True))
        chats = map_numbered(
            "conversation", lambda pair: self._chat(*pair, offered, variables, cache_salt), pairs
        )
        return self._answers("conversation", chats, progress)

    def embed(
        self,
        prompts: Given | Iterable[Given],
        *,
        prompt_name: str | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
        pooling: str | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[npt.NDArray[np.float32]]:
        """Embeds prompts, given as texts or token ids: a vector for each, or with `token` one for each token.

        prompt_name: what the model's folder puts in front of texts. truncate_prompt_tokens: how many tokens
        are kept of each prompt, -1: as many as the model takes; None: a longer one raises RequestError.
        """
        params = PoolingParams(pooling=pooling, normalize=normalize, dimensions=dimensions)
        work = self._pooling()
        before = work.before(prompt_name)
        return work.pooled(given_prompts(prompts), params, before, truncate_prompt_tokens)

    def classify(
        self,
        prompts: Given | Iterable[Given],
        *,
        activation: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> list[dict[str, float]]:
        """The score of each label for each prompt, by the model's head. Raises RequestError without one.

        truncate_prompt_tokens: as of `embed`.
        """
        work, params = self._pooling(), PoolingParams(task="classify", activation=activation)
        scored = work.pooled(given_prompts(prompts), params, truncate=truncate_prompt_tokens)
        return [dict(zip(work.facts.labels, each.tolist(), strict=True)) for each in scored]

    def score(
        self,
        query: str | Iterable[str],
        texts: str | Iterable[str],
        *,
        prompt_name: str | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[float]:
        """How well each of `texts` answers `query`, or the query in its place in a list of as many.

        prompt_name: of the instruction that a reranker's folder has for it, or of what an embedder's has for
        queries. truncate_prompt_tokens: as of `embed`, of each pair that a reranker reads.
        """
        texts = given_texts(texts, "texts")
        queries = [query] * len(texts) if isinstance(query, str) else given_texts(query, "query")
        if len(queries) != len(texts):
            raise RequestError(f"{len(queries)} queries need as many texts, not {len(texts)}", "texts")
        pairs = list(zip(queries, texts, strict=True))
        return self._pooling().scores(pairs, prompt_name, truncate_prompt_tokens)

    # -------------------------------------------------------------- details

    def _pooling(self) -> OfflinePooling:
        from turnout.runner.pooling.offline import OfflinePooling

        return OfflinePooling(self.engine, self.ready, self.tokenizer, self._turns)

    def _params_for(
        self, count: int, given: SamplingParams | Iterable[SamplingParams] | None
    ) -> Sequence[SamplingParams]:
        if given is None or isinstance(given, SamplingParams):
            return [given or self.default_params()] * count
        field = "sampling_params"
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise RequestError(
                f"{field} is a SamplingParams, or one for each prompt, not {type(given).__name__}", field
            )
        params = list(given)
        if len(params) != count:
            raise RequestError(f"{count} prompts need as many {field}, not {len(params)}", field)
        for number, each in enumerate(params):
            if not isinstance(each, SamplingParams):
                raise RequestError(f"{field}[{number}] is a SamplingParams, not {type(each).__name__}", field)
        return params

    def _answers(self, what: str, requests: Sequence[_PromptRequest], progress: bool) -> list[RequestOutput]:
        """What the requests become. what: what errors call them."""
        self._turns.take(lambda: self._serve(what, requests, progress))
        failed = {number: request.error for number, request in enumerate(requests) if request.error}
        if failed:
            outputs = [None if request.error else request.result() for request in requests]
            raise _with_outputs(what, failed, outputs)
        return [request.result() for request in requests]

    def _serve(self, what: str, requests: Sequence[_PromptRequest], progress: bool) -> None:
        from turnout.kernels.threads import give_back_threads

        try:
            map_numbered(what, lambda request: self.engine.add(request.spec), requests)
            self._run({request.spec.id: request for request in requests}, progress)
        finally:
            # However the loop ends, even by an interrupt, the next call starts with an idle engine.
            for request in requests:
                self.engine.abort(request.spec.id)
            give_back_threads()

    def _chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        offered: ToolRequest,
        variables: Mapping[str, Any],
        salt: str,
    ) -> _PromptRequest:
        """A conversation, as the server has it."""
        format = self._format
        template, told, tools = format.conversation(messages, offered.described())
        text = self._templates.render(template, told, **tools, **variables)
        wanted, begun = offered.wanted, format.begun(text)
        asked = params.structured_outputs
        form = format.form(wanted, asked, begun)
        splitter = format.splitter(wanted.tools, begun, formed=asked is not None)
        return self._request(
            self.tokenizer.encode(text, add_special_tokens=False),
            msgspec.structs.replace(params, structured_outputs=form),
            salt,
            splitter,
            shown=frozenset() if splitter is None else format.shown,
        )

    def _request(
        self,
        prompt: Prompt,
        params: SamplingParams,
        salt: str,
        splitter: Callable[[], OutputSplitter] | None = None,
        shown: frozenset[int] = frozenset(),
    ) -> _PromptRequest:
        from turnout.text.engine_params import engine_params

        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        spec = RequestSpec(
            id=str(next(self._ids)),
            prompt=ids,
            params=engine_params(params, self.tokenizer),
            seed=concrete_seed(params.seed),
            cache_salt=salt,
        )
        text = prompt if isinstance(prompt, str) else None
        return _PromptRequest(spec, params, text, self, splitter, shown)

    def _run(self, left: dict[str, _PromptRequest], progress: bool) -> None:
        from tqdm import tqdm

        with tqdm(total=len(left), desc="requests", disable=bar_disabled(progress)) as bar:
            while left and self.engine.busy:
                for delta in self.engine.step():
                    request = left.get(delta.request_id)
                    if request is not None and request.add(delta):
                        del left[delta.request_id]
                        bar.update()
        for request in left.values():
            request.error = EngineError("the engine ended it without an answer, as after Engine.abort")


class _PromptRequest:
    """A prompt in the engine, and the choices it has so far."""

    def __init__(
        self,
        spec: RequestSpec,
        params: SamplingParams,
        prompt: str | None,
        llm: LLM,
        splitter: Callable[[], OutputSplitter] | None,
        shown: frozenset[int],
    ) -> None:
        """splitter: makes what tells a choice's parts apart; None: it is text. shown: special tokens that are
        text all the same."""
        from turnout.text.choice_text import ChoiceText
        from turnout.text.split.split_text import SplitText
        from turnout.text.stops import StopStrings

        self.spec = spec
        self._returned = params.n
        self._prompt = prompt
        self._llm = llm
        wanted = params.logprobs is not None
        self._outputs = [CompletionOutput(i, logprobs=[] if wanted else None) for i in range(spec.params.n)]
        stops = StopStrings(spec.params.stop)
        texts = [
            ChoiceText(llm.tokenizer, spec.params, spec.prompt, i, stops, shown) for i in range(spec.params.n)
        ]
        self._texts: Sequence[ChoiceText | SplitText] = texts
        self._is_split = splitter is not None
        if splitter is not None:
            self._texts = [SplitText(text, splitter(), singly=bool(spec.params.stop)) for text in texts]
        self._open = spec.params.n
        self.error: TurnoutError | None = None
        """Why it has failed, if it has."""
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = None

    def add(self, delta: Delta) -> bool:
        """Add what a step brought; returns True when the request has ended."""
        if delta.error:
            invalid = delta.error_kind == "invalid"
            self.error = RequestError(delta.error, delta.error_param) if invalid else EngineError(delta.error)
            return True
        if delta.prompt_logprobs is not None:
            self._prompt_logprobs = [None, *(dict(self._named(score)) for score in delta.prompt_logprobs)]
        output, text = self._outputs[delta.index], self._texts[delta.index]
        if output.finish_reason is not None:
            return False
        added = text.feed(delta)
        if self._is_split:
            _add_parts(output, added.events)
        else:
            output.text += added.text
        output.token_ids += added.tokens
        self._add_logprobs(output, delta.logprobs, len(added.tokens))
        if added.finish_reason is None:
            return False
        called = bool(output.tool_calls) and added.finish_reason == "stop"
        output.finish_reason = "tool_calls" if called else added.finish_reason
        output.stop_reason = added.stop_reason
        output.cumulative_logprob, output.beam_score = added.cumulative_logprob, added.score
        if text.stopped_by_text:
            self._llm.engine.abort(self.spec.id, delta.index)
        self._open -= 1
        return not self._open

    def result(self) -> RequestOutput:
        from turnout.text.best_of import best_of

        positions = best_of([output.cumulative_logprob for output in self._outputs], self._returned)
        return RequestOutput(
            self.spec.id,
            self._prompt,
            self.spec.prompt,
            [replace(self._outputs[position], index=index) for index, position in enumerate(positions)],
            prompt_logprobs=self._prompt_logprobs,
        )

    def _add_logprobs(
        self, output: CompletionOutput, entries: list[TokenLogprobs] | None, count: int
    ) -> None:
        if output.logprobs is None or entries is None:
            return
        for entry in entries[:count]:
            output.logprobs.append(dict(self._named(entry)))

    def _named(self, entry: TokenLogprobs) -> Iterator[tuple[int, Logprob]]:
        for token, logprob, rank in entry.ranked():
            yield token, Logprob(logprob, rank, self._llm.tokenizer.token_text(token))


def _check_salt(salt: object) -> None:
    if not isinstance(salt, str):
        raise RequestError(
            f"cache_salt is a text, not {type(salt).__name__}; leave it out to share with all that do",
            "cache_salt",
        )


def _with_outputs(
    what: str, failed: Mapping[int, TurnoutError], outputs: Sequence[RequestOutput | None]
) -> TurnoutError:
    """The first of the errors, which tells how many there are, and has what the others became."""
    number, error = next(iter(failed.items()))
    if len(outputs) > 1:
        more = f" ({len(failed) - 1} others failed, too)" if len(failed) > 1 else ""
        error.args = (f"{what} {number}: {error}{more}",)
    error.outputs = outputs
    return error


def _as_message(call: ToolCall) -> dict[str, Any]:
    """A call as a message has it."""
    if call.input is not None:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.input}}
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _add_parts(output: CompletionOutput, events: Iterable[Event]) -> None:
    from turnout.text.output.events import Reasoning, Text, ToolArguments, ToolBegin, ToolInput

    for event in events:
        if isinstance(event, Text):
            output.text += event.text
        elif isinstance(event, Reasoning):
            output.reasoning += event.text
        elif isinstance(event, ToolBegin):
            begun = "" if event.custom else None
            output.tool_calls.append(ToolCall(f"call_{uuid4().hex[:24]}", event.name, "", begun))
        elif isinstance(event, ToolArguments):
            call = output.tool_calls[-1]
            output.tool_calls[-1] = replace(call, arguments=call.arguments + event.text)
        elif isinstance(event, ToolInput):
            call = output.tool_calls[-1]
            output.tool_calls[-1] = replace(call, input=(call.input or "") + event.text)
