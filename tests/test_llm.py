"""Offline use on the embedded model: what a script sees."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from turnout import LLM, SamplingParams
from turnout.core.errors import ConfigError, EngineError, ModelError, RequestError
from turnout.text.tokenizer import Tokenizer

PROMPTS = ["def add(a, b):\n", "import os\n\n# 你好，世界 🙂\nfor name in", "class Stack:\n    def push(self"]
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    yield LLM(kv_memory="64MiB", device="cpu")


def test_outputs_come_in_the_order_of_the_prompts_and_equal_solo_runs(llm: LLM) -> None:
    together = llm.generate(PROMPTS, GREEDY, progress=False)
    assert [out.prompt for out in together] == PROMPTS
    for prompt, out in zip(PROMPTS, together, strict=True):
        (alone,) = llm.generate(prompt, GREEDY, progress=False)
        (choice,) = out.outputs
        assert choice.token_ids == alone.outputs[0].token_ids and len(choice.token_ids) == 24
        assert choice.text == alone.outputs[0].text == llm.tokenizer.decode(choice.token_ids)
        assert choice.finish_reason == "length" and out.finished
        assert llm.tokenizer.decode(out.prompt_token_ids) == prompt


def test_greedy_text_is_what_transformers_generates(llm: LLM) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from turnout.models.hub.resolve import resolve_model

    folder = resolve_model("turnout-tiny")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    (out,) = llm.generate(PROMPTS[0], GREEDY, progress=False)
    ids = tokenizer(PROMPTS[0], return_tensors="pt")
    plain = {"do_sample": False, "repetition_penalty": 1.0}
    theirs = model.generate(**ids, max_new_tokens=24, min_new_tokens=24, **plain)
    assert out.prompt_token_ids == ids["input_ids"][0].tolist()
    assert out.outputs[0].token_ids == theirs[0, len(out.prompt_token_ids) :].tolist()


def test_prompts_may_be_token_ids(llm: LLM) -> None:
    ids = llm.tokenizer.encode(PROMPTS[0])
    one, text = llm.generate([ids, PROMPTS[0]], GREEDY, progress=False)
    (alone,) = llm.generate(ids, GREEDY, progress=False)
    assert one.outputs[0].token_ids == text.outputs[0].token_ids == alone.outputs[0].token_ids
    assert one.prompt is None


def test_prompts_may_have_vllms_form(llm: LLM) -> None:
    """The key of a single dictionary was completed as a text."""
    ids = llm.tokenizer.encode(PROMPTS[0])
    (plain,) = llm.generate(PROMPTS[0], GREEDY, progress=False)
    text, tokens = llm.generate([{"prompt": PROMPTS[0]}, {"prompt_token_ids": ids}], GREEDY, progress=False)
    (alone,) = llm.generate({"prompt_token_ids": ids}, GREEDY, progress=False)
    assert {plain.outputs[0].text} == {out.outputs[0].text for out in (text, tokens, alone)}
    assert text.prompt == PROMPTS[0] and tokens.prompt is alone.prompt is None


def test_what_is_no_prompt_or_conversation_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match=r"a prompt is a text, a list of token ids, .*, not NoneType"):
        llm.generate(None)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"a conversation is a list of messages such as .*, not str"):
        llm.chat("hi")  # type: ignore[arg-type]


def test_text_goes_on_where_its_prompt_ended(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tokenizers such as Llama 2's it began without its space, as if there were no prompt; the server's
    did not.
    """
    backend = Backend(models.WordLevel({"▁Hello": 0, "▁world": 1}, unk_token="▁Hello"))
    backend.decoder = decoders.Metaspace()
    monkeypatch.setattr(llm, "tokenizer", Tokenizer(backend))
    world = SamplingParams(max_tokens=2, allowed_token_ids=(1,))
    (out,) = llm.generate([[0]], world, progress=False)
    assert out.outputs[0].text == " world world"


def test_each_prompt_may_have_its_own_parameters(llm: LLM) -> None:
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (1, 2, 3)]
    outputs = llm.generate(PROMPTS, params, progress=False)
    assert [len(out.outputs[0].token_ids) for out in outputs] == [1, 2, 3]
    with pytest.raises(RequestError, match="3 prompts need as many sampling_params, not 2"):
        llm.generate(PROMPTS, params[:2], progress=False)


def test_a_stop_string_cuts_the_text_and_ends_the_choice(llm: LLM) -> None:
    whole = llm.generate(PROMPTS[0], GREEDY, progress=False)[0].outputs[0].text
    stop = whole[7:10]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, stop=(stop,))
    choice = llm.generate(PROMPTS[0], params, progress=False)[0].outputs[0]
    assert choice.text == whole[: whole.index(stop)]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)
    assert not llm.engine.busy


def test_choices_and_logprobs(llm: LLM) -> None:
    params = SamplingParams(n=3, temperature=1.0, seed=4, max_tokens=8, ignore_eos=True, logprobs=2)
    (out,) = llm.generate(PROMPTS[0], params, progress=False)
    assert [choice.index for choice in out.outputs] == [0, 1, 2]
    assert len({tuple(choice.token_ids) for choice in out.outputs}) == 3
    for choice in out.outputs:
        assert choice.logprobs is not None and choice.cumulative_logprob is not None
        chosen = [table[token] for token, table in zip(choice.token_ids, choice.logprobs, strict=True)]
        assert abs(sum(entry.logprob for entry in chosen) - choice.cumulative_logprob) < 1e-4
        assert all(len(table) in (2, 3) for table in choice.logprobs)
        assert "".join(entry.decoded_token for entry in chosen) == choice.text


def test_beams_are_what_transformers_searches(llm: LLM) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from turnout.models.hub.resolve import resolve_model

    model = AutoModelForCausalLM.from_pretrained(resolve_model("turnout-tiny"), dtype=torch.float32)
    # The checkpoint's own penalty on both sides: it is no sampling.
    params = llm.default_params(n=4, use_beam_search=True, beam_width=4, length_penalty=0.8, max_tokens=24)
    for out in llm.generate(PROMPTS, params, progress=False):
        ids = torch.tensor([out.prompt_token_ids])
        theirs = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=4,
            num_return_sequences=4,
            length_penalty=0.8,
            max_new_tokens=24,
            do_sample=False,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
        for beam, sequence, score in zip(
            out.outputs, theirs.sequences, theirs.sequences_scores.tolist(), strict=True
        ):
            end = ids.shape[1] + len(beam.token_ids)
            assert beam.token_ids == sequence[ids.shape[1] : end].tolist() and not sequence[end:].any()
            assert beam.beam_score == pytest.approx(score, rel=1e-4)


def test_the_best_of_several_are_the_most_likely_of_them(llm: LLM) -> None:
    asked = {"seed": 4, "max_tokens": 8, "ignore_eos": True, "temperature": 1.0}
    (every,) = llm.generate(PROMPTS[0], SamplingParams(n=6, logprobs=0, **asked), progress=False)
    (best,) = llm.generate(PROMPTS[0], SamplingParams(n=2, best_of=6, **asked), progress=False)
    ranked = sorted(every.outputs, key=lambda choice: -(choice.cumulative_logprob or 0))
    assert [choice.token_ids for choice in best.outputs] == [choice.token_ids for choice in ranked[:2]]
    assert [choice.index for choice in best.outputs] == [0, 1]
    assert all(choice.logprobs is None for choice in best.outputs), "no request asked for them"


def forecast(city: str, days: int) -> str:
    """Tells the weather.

    Args:
        city: A city's name.
        days: How many days.
    """
    return f"{city}: sun for {days} days"


def test_a_babbling_model_makes_a_valid_call(llm: LLM) -> None:
    """The embedded model knows no tools; the grammar, made of the function, does."""
    babbling = SamplingParams(max_tokens=1500, temperature=1.0, seed=3)
    (out,) = llm.chat(
        [{"role": "user", "content": "Weather?"}],
        babbling,
        tools=[forecast],
        tool_choice="forecast",
        progress=False,
    )
    (choice,) = out.outputs
    (call,) = choice.tool_calls
    assert call.name == "forecast" and choice.text == ""
    if choice.finish_reason == "length":  # in the middle of a long name
        return
    assert choice.finish_reason == "tool_calls"
    arguments = json.loads(call.arguments)
    assert isinstance(forecast(**arguments), str) and isinstance(arguments["days"], int)


def test_a_form_of_calls_is_made_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the server: it was made anew for each conversation."""

    def ask() -> object:
        asked = [{"role": "user", "content": "Weather?"}]
        few = SamplingParams(max_tokens=2)
        return llm.chat(asked, few, tools=[forecast], tool_choice="forecast", progress=False)

    ask()
    monkeypatch.setattr("turnout.text.model_format.call_form", lambda *_, **__: pytest.fail("made anew"))
    ask()


def test_chat_goes_through_the_models_template(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "def add(a, b):"}]
    (out,) = llm.chat(conversation, GREEDY, progress=False)
    assert out.prompt_token_ids == llm.tokenizer.apply_chat_template(conversation)
    assert len(llm.chat([conversation] * 2, GREEDY, progress=False)) == 2


def test_a_template_without_end_is_ended(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran in the user's process, for ever."""
    loops = "{% for i in range(9999) %}" * 4 + "{% endfor %}" * 4
    tokenizer = Tokenizer(llm.tokenizer.backend, {}, {"default": loops})
    monkeypatch.setattr(llm, "_format", replace(llm._format, tokenizer=tokenizer))
    with pytest.raises(RequestError, match="takes longer than 2 seconds"):
        llm.chat([{"role": "user", "content": "x"}], GREEDY, progress=False)


def test_messages_that_are_no_plain_data(llm: LLM) -> None:
    with pytest.raises(RequestError, match="something else than texts, numbers and lists"):
        llm.chat([{"role": "user", "content": "x", "name": object()}], GREEDY, progress=False)


def test_defaults_are_the_checkpoints_and_the_decodings() -> None:
    llm = LLM(kv_memory="64MiB", decoding="sampling:top_p=0.4", device="cpu")
    params = llm.default_params(max_tokens=3)
    assert (params.temperature, params.top_p, params.max_tokens) == (0.5, 0.4, 3)
    assert LLM(kv_memory="64MiB", decoding="greedy").default_params().greedy
    beams = LLM(kv_memory="64MiB", decoding="beam:width=3").default_params()
    assert (beams.use_beam_search, beams.beam_width, beams.top_p) == (True, 3, 1.0)


def test_more_prompts_than_a_server_would_let_wait(llm: LLM) -> None:
    """A server's limit against overload turned a script's 4,097th prompt away."""
    params = SamplingParams(temperature=0, max_tokens=1)
    assert len(llm.generate([[5]] * 5000, params, progress=False)) == 5000


def test_nothing_runs_when_one_prompt_cannot(llm: LLM) -> None:
    with pytest.raises(RequestError, match="context length"):
        llm.generate([PROMPTS[0], [5] * 5000], GREEDY, progress=False)
    assert not llm.engine.busy
    assert len(llm.generate(PROMPTS, GREEDY, progress=False)) == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"schedular": "fcfs"},
            ConfigError,
            "unknown option 'schedular'.*did you mean 'scheduler'",
        ),
        ({"scheduler": "fcsf"}, ConfigError, "fcsf.*did you mean 'fcfs'"),
        ({"kv": "paged:blocksize=8"}, ConfigError, "unknown option 'blocksize'.*block_size"),
        ({"kv": "contiguous", "block_size": 8}, ConfigError, "block_size"),
        ({"kv_memory": "64KiB"}, ConfigError, "holds 0 tokens|needs .* MiB"),
        ({"kv_memory": "900TiB"}, ConfigError, "has .* free"),
        ({"max_model_len": 10**6}, ConfigError, "exceeds the model's 2,048 positions"),
        ({"device": "cuda:99"}, ConfigError, "cuda:99"),
        ({"device": "tpu"}, ConfigError, "use auto, cpu, cuda or cuda:N"),
        ({"model": "no/such-model"}, ModelError, "HF_ENDPOINT"),
    ],
)
def test_what_cannot_work_says_so_at_once(options, error, message) -> None:
    with pytest.raises(error, match=message):
        LLM(**options)


def test_a_prompt_has_log_probabilities_where_they_are_asked_for(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    (scored,) = llm.generate(PROMPTS[0], params, progress=False)
    assert scored.prompt_logprobs is not None and scored.prompt_logprobs[0] is None
    for token, entry in zip(scored.prompt_token_ids[1:], scored.prompt_logprobs[1:], strict=True):
        assert entry is not None and entry[token].logprob <= 0
        assert entry[token].decoded_token == llm.tokenizer.token_text(token)
    assert llm.generate(PROMPTS[0], GREEDY, progress=False)[0].prompt_logprobs is None


def test_prompts_share_computed_prefixes_only_with_the_same_salt(llm: LLM) -> None:
    pool, prompt = llm.engine.scheduler.kv, "import argparse\n" * 12

    def found(salt: str) -> int:
        before = pool.snapshot().hits
        llm.generate(prompt, GREEDY, cache_salt=salt, progress=False)
        return pool.snapshot().hits - before

    assert [found("red"), found("blue"), found("")] == [0, 0, 0]
    assert found("red") == found("") > 16


FEW = SamplingParams(temperature=0, max_tokens=2)
ONE_TEXT = SamplingParams(use_beam_search=True, n=4, allowed_token_ids=[5], max_tokens=8)
"""Its beams find one text, where four are asked for."""
HI = [{"role": "user", "content": "import os"}]


def test_calls_from_several_threads_take_turns(llm: LLM) -> None:
    """Each call stepped the engine of all and dropped the tokens of the others: texts were cut, or memory was
    freed twice."""
    prompts = [f"def f{number}(a):\n" for number in range(8)]
    alone = [out.outputs[0].token_ids for out in llm.generate(prompts, GREEDY, progress=False)]

    def call(number: int) -> tuple[list[int], int]:
        (out,) = llm.generate(prompts[number], GREEDY, progress=False)
        (vector,) = llm.embed(prompts[number], pooling="last")
        return out.outputs[0].token_ids, len(vector)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = list(pool.map(call, range(8)))
            assert [tokens for tokens, _ in found] == alone and {size for _, size in found} == {256}


def test_an_interrupted_call_gives_its_turn_back(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(llm.engine, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, GREEDY, progress=False)
    assert len(llm.generate(PROMPTS, FEW, progress=False)) == 3


def test_a_call_in_the_midst_of_another_is_refused(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin, or the handler of a signal, would step an engine that is at a step."""
    monkeypatch.setattr(llm.engine, "step", lambda: llm.generate("x", FEW, progress=False))
    with pytest.raises(EngineError, match="this thread uses the engine already"):
        llm.generate("x", FEW, progress=False)


def test_a_process_forked_while_no_call_runs_may_go_on(llm: LLM) -> None:
    llm.generate("x", FEW, progress=False)
    assert _in_a_child(lambda: len(llm.generate("x", FEW, progress=False)) == 1)


def test_a_process_forked_during_a_call_is_told(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for ever for a thread that it does not have."""
    begun, ended, step = threading.Event(), threading.Event(), llm.engine.step

    def held() -> object:
        begun.set()
        assert ended.wait(60)
        return step()

    def refused() -> bool:
        with pytest.raises(EngineError, match="forked while a call used the engine"):
            llm.generate("x", FEW, progress=False)
        return True

    monkeypatch.setattr(llm.engine, "step", held)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(llm.generate, "x", FEW, progress=False)
        try:
            assert begun.wait(60) and _in_a_child(refused)
        finally:
            ended.set()
        assert call.result()[0].finished


def test_a_request_that_is_ended_from_outside_is_an_error(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had so far was returned as its answer."""
    step = llm.engine.step

    def ending() -> object:
        deltas = step()
        llm.engine.abort_all()
        return deltas

    monkeypatch.setattr(llm.engine, "step", ending)
    with pytest.raises(EngineError, match="ended it without an answer"):
        llm.generate("x", GREEDY, progress=False)
    monkeypatch.setattr(llm.engine, "step", lambda: llm.engine.abort_all() or [])
    with pytest.raises(EngineError, match="ended a text without an answer"):
        llm.embed("x", pooling="last")


def test_a_prompt_that_fails_late_leaves_the_others_their_outputs(llm: LLM) -> None:
    """The whole batch was lost, and nothing told which prompt it was."""
    params = [GREEDY, ONE_TEXT, GREEDY]
    with pytest.raises(RequestError, match=r"^prompt 1: n=4 choices were asked for, .* only 1$") as caught:
        llm.generate(PROMPTS, params, progress=False)
    first, failed, last = caught.value.outputs or ()
    alone = llm.generate([PROMPTS[0], PROMPTS[2]], GREEDY, progress=False)
    assert failed is None
    assert [out.outputs[0].token_ids for out in (first, last)] == [out.outputs[0].token_ids for out in alone]
    with pytest.raises(RequestError, match=r"^prompt 0: n=4 .*\(2 others failed, too\)$"):
        llm.generate(PROMPTS, ONE_TEXT, progress=False)
    with pytest.raises(RequestError, match=r"^n=4 choices"):
        llm.generate(PROMPTS[0], ONE_TEXT, progress=False)
    with pytest.raises(RequestError, match=r"^conversation 1: n=4 choices"):
        llm.chat([HI, HI], [GREEDY, ONE_TEXT], progress=False)


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        (["a", None], FEW, "^prompt 1: a prompt is a text"),
        (["a", [5] * 5000], FEW, "^prompt 1: .* but the prompt has 5000"),
        (["a", "b"], [FEW, SamplingParams(decoding="nope")], "^prompt 1: .*nope"),
        ([[5] * 5000], FEW, "^this model.* but the prompt has 5000"),
    ],
)
def test_an_error_names_the_prompt_by_its_number(llm: LLM, prompts: Any, params: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        llm.generate(prompts, params, progress=False)
    assert caught.value.outputs is None and not llm.engine.busy


def test_parts_of_a_message_become_its_text(llm: LLM) -> None:
    """Python's notation of the list was in the prompt."""
    parts = [{"role": "user", "content": [{"type": "text", "text": "import os"}]}]
    plain, same = llm.chat([HI, parts], FEW, progress=False)
    assert plain.prompt_token_ids == same.prompt_token_ids


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([{"type": "image_url"}], r"messages\[0\].content: only parts of type 'text' are supported"),
        ([{"type": "text"}], "is expected to have a text, which is a string"),
        (5, "a string or a list of parts is expected"),
    ],
)
def test_a_content_that_is_no_text_is_refused(llm: LLM, content: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        llm.chat([{"role": "user", "content": content}], FEW, progress=False)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"tools": [1]}, "chat_template_kwargs: 'tools' cannot be given here"),
        ({"messages": 1}, "'messages' cannot be given here"),
        ({"add_generation_prompt": False}, "'add_generation_prompt' cannot be given here"),
        ([1], "chat_template_kwargs are variables by their names"),
        ({1: 2}, "chat_template_kwargs are variables by their names"),
    ],
)
def test_variables_that_turnout_sets_cannot_be_given(llm: LLM, variables: Any, message: str) -> None:
    """They replaced the conversation's own without a word, as the server never let them."""
    with pytest.raises(RequestError, match=message):
        llm.chat(HI, FEW, chat_template_kwargs=variables, progress=False)


def test_a_variable_of_the_chat_template_may_have_any_other_name(llm: LLM) -> None:
    """`template` was a TypeError."""
    assert llm.chat(HI, FEW, chat_template_kwargs={"template": 1, "options": 2}, progress=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda llm: llm.generate("a", {"temperature": 0}),
            "sampling_params is a SamplingParams, .*, not dict",
        ),
        (lambda llm: llm.generate("a", 5), "sampling_params is a SamplingParams, .*, not int"),
        (lambda llm: llm.generate(["a", "b"], [FEW, None]), r"sampling_params\[1\] is .*, not NoneType"),
        (lambda llm: llm.generate("a", cache_salt=3), "cache_salt is a text, not int"),
        (lambda llm: llm.chat(HI, cache_salt=None), "cache_salt is a text, not NoneType"),
        (lambda llm: llm.chat(HI, tools=forecast), "tools is a list of functions"),
        (lambda llm: llm.chat(HI, tools=[5]), "a tool is a function, or has OpenAI's form, not 5"),
        (lambda llm: llm.score("a", None), "texts is a text or a list of texts, not NoneType"),
        (lambda llm: llm.score("a", [1, 2]), r"texts\[0\] is a text, not int"),
        (lambda llm: llm.score(5, ["a"]), "query is a text or a list of texts, not int"),
        (lambda llm: llm.embed("a", normalize="no"), "normalize must be true or false, not 'no'"),
        (lambda llm: llm.embed("a", pooling=5), "pooling must be a strategy's name, not 5"),
        (lambda llm: llm.classify("a", activation="no"), "activation must be true or false, not 'no'"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(llm: LLM, call: Any, message: str) -> None:
    """Some were errors from within, others did something else than was asked for, or nothing."""
    with pytest.raises(RequestError, match=message):
        call(llm)


def test_arguments_may_be_generators(llm: LLM) -> None:
    outputs = llm.generate((p for p in PROMPTS), (FEW for _ in PROMPTS), progress=False)
    assert len(outputs) == 3
    (listed,) = llm.chat(HI, FEW, tools=[forecast], tool_choice="forecast", progress=False)
    (out,) = llm.chat(HI, FEW, tools=(each for each in [forecast]), tool_choice="forecast", progress=False)
    assert out.prompt_token_ids == listed.prompt_token_ids


def _in_a_child(check: Any) -> bool:
    """Whether `check` is true in a forked process, within a minute."""
    child = os.fork()
    if not child:
        try:
            signal.alarm(60)
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
