"""The second table of docs/reference/compatibility.md: every "yes" is served here.

What changes only how an engine works is compared with a plain engine, asked for one answer at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from conversations import CONVERSATIONS, PROMPTS, Answer, Conversation, calls_are_valid
from features import BY_NAME, FEATURES, Feature
from local_client import answered
from small_engines import PLAIN, SEESAW
from tiny_server import TinyServer, serving

from turnout import LLM
from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "compatibility.md"
BY_ROW = {conversation.name: conversation for conversation in CONVERSATIONS}
DRAFTS = ("draft model", "n-gram drafts")
CHOICES = {"n": {"n": 2, "temperature": 0.9, "seed": 7}, "beams": {"use_beam_search": True, "n": 2}}
ADDED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
ADDED += ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
NAME = "talker"
THOUGHT = 1.0
"""What makes the end of reasoning likely, among logits of a random model."""
TEMPLATE = """{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ m.reasoning_content and '<think>' ~ m.reasoning_content ~ '</think>' }}{{ m.content }}<|im_end|>
{% endfor -%}
{%- if tools %}Return <tool_call>{"name": …, "arguments": …}</tool_call>: {{ tools | tojson }}{% endif -%}
<|im_start|>assistant
{{ '<think>\\n' if begin_thinking }}"""


def table() -> dict[str, dict[str, str]]:
    """The cells by rows and columns."""
    text = DOCUMENT.read_text().partition("| | streaming |")
    lines = (text[1] + text[2]).partition("\n\n")[0].splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].partition("]")[0].strip("["): dict(zip(header[1:], row[1:], strict=True)) for row in rows}


CELLS = table()
ENGINES = [
    feature
    for feature in FEATURES
    if feature.engine and feature.name not in ("int8 KV", "int4 weights")  # as fp8 and int8 are
]


def test_the_table_has_these_rows_and_nothing_but_yes_or_no() -> None:
    assert list(CELLS) == list(BY_ROW)
    for name, cells in CELLS.items():
        choices = "yes" if BY_ROW[name].choices else "–"
        assert cells.pop("`n`, beams") == choices and set(cells.values()) == {"yes"}


# ------------------------------------------------------------------ one process


@pytest.fixture(scope="session")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random models whose tokenizer has the markers of a format, and a template with tools."""
    folder = tmp_path_factory.mktemp("talker")
    (folder / "turnout_plugins.py").write_text(SEESAW)
    embedded = resolve_model("turnout-tiny")
    tokenizer = json.loads((embedded / "tokenizer.json").read_text())
    size = len(tokenizer["model"]["vocab"])
    for number, text in enumerate(ADDED):
        added = {**tokenizer["added_tokens"][0], "id": size + number, "content": text}
        tokenizer["added_tokens"].append(added)
    for name, hidden, seed in (("target", 64, 1), ("draft", 32, 2)):
        shape = Shape(hidden, 2, 4, 2, 96, size + 16, max_positions=1024, theta=10_000.0)
        config = {**config_of(shape, "qwen2", dtype="float32"), "eos_token_id": 2}
        write_random_checkpoint(folder / name, config, seed=seed)
        (folder / name / "tokenizer.json").write_text(json.dumps(tokenizer))
        shutil.copy(embedded / "tokenizer_config.json", folder / name)
        (folder / name / "chat_template.jinja").write_text(TEMPLATE)
    return folder


MakeTalker = Callable[[Mapping[str, Any]], LLM]


@pytest.fixture(scope="session")
def make_talker(talker: Path) -> MakeTalker:
    made: dict[str, LLM] = {}

    def make(options: Mapping[str, Any]) -> LLM:
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            for other in [known for known in made if '"quantization"' not in known and known != "{}"]:
                del made[other]  # one at a time, beside the plain ones
            given = dict(options)
            if "decoding" in given:
                given["decoding"] = given["decoding"].replace("DRAFT", str(talker / "draft"))
            limits = {**PLAIN, "max_model_len": 512}
            made[key] = LLM(str(talker / "target"), plugins_folder=str(talker), **limits, **given)
        return made[key]

    return make


def body(row: Conversation, prompt: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    asked = row.asked(prompt)
    if row.name == "reasoning":
        asked["logit_bias"] = {str(4096 + ADDED.index("</think>")): THOUGHT}
    return {**asked, **(more or {})}


def responses_of(llm: LLM, row: Conversation, bodies: list[dict[str, Any]]) -> list[httpx.Response]:
    return answered(llm, row.path, bodies, NAME)


def ask(llm: LLM, row: Conversation, more: Mapping[str, Any] | None = None) -> list[Answer]:
    responses = responses_of(llm, row, [body(row, prompt, more) for prompt in PROMPTS])
    return [row.whole(_content(response)) for response in responses]


def _content(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    content: dict[str, Any] = response.json()
    return content


def events(text: str) -> list[dict[str, Any]]:
    """Of a stream: server-sent ones, or lines."""
    lines = (line.removeprefix("data: ") for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture(params=CONVERSATIONS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Conversation:
    row: Conversation = request.param
    return row


def test_streamed_it_is_the_same(row: Conversation, make_talker: MakeTalker) -> None:
    llm = make_talker({})
    whole = ask(llm, row)
    for answer in whole:
        row.check(answer[0])
    if row.check is calls_are_valid:
        assert any(part.kind == "call" for answer in whole for part in answer[0])
    responses = responses_of(llm, row, [body(row, prompt, {"stream": True}) for prompt in PROMPTS])
    assert [row.streamed(events(response.text)) for response in responses] == whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("name", [name for name, row in BY_ROW.items() if row.choices])
def test_every_choice_has_its_form(name: str, kind: str, make_talker: MakeTalker) -> None:
    for answer in ask(make_talker({}), BY_ROW[name], CHOICES[kind]):
        assert len(answer) == 2
        for choice in answer:
            BY_ROW[name].check(choice)


@pytest.mark.slow
def test_text_beside_it_has_its_form(row: Conversation, make_talker: MakeTalker) -> None:
    for answer in ask(make_talker({}), row, row.formed):
        row.formed_check(answer[0])


def same_on(row: Conversation, feature: Feature, make_talker: MakeTalker) -> int:
    """Returns how many requests were preempted for it."""
    given = feature.engine.get("quantization")
    plain = make_talker({"quantization": given} if given else {})
    alone = [answer for prompt in PROMPTS for answer in _alone(plain, row, prompt)] if feature.exact else []
    one = {"max_num_seqs": 1} if "preemption" in feature.engine else {}
    llm = make_talker({**feature.engine, **one})
    before = llm.engine.stats().preemptions
    together = ask(llm, row)
    for answer in together:
        row.check(answer[0])
    assert not feature.exact or together == alone
    preemptions: int = llm.engine.stats().preemptions - before
    return preemptions


def _alone(llm: LLM, row: Conversation, prompt: str) -> list[Answer]:
    (response,) = responses_of(llm, row, [body(row, prompt)])
    return [row.whole(_content(response))]


@pytest.mark.slow
def test_drafts_change_no_token(row: Conversation, make_talker: MakeTalker) -> None:
    same_on(row, BY_NAME["n-gram drafts"], make_talker)


@pytest.mark.slow
@pytest.mark.parametrize("feature", ENGINES, ids=lambda feature: feature.name)
def test_another_engine_changes_no_token(feature: Feature, make_talker: MakeTalker) -> None:
    preempted = [same_on(row, feature, make_talker) for row in CONVERSATIONS]
    assert any(preempted) or "preemption" not in feature.engine


# ------------------------------------------------------------------ several processes


def flags(talker: Path) -> list[str]:
    folder = ["--plugins-folder", str(talker), "--device", "cpu", "--dtype", "float32"]
    return [*folder, "--kv-memory", "64MiB", "--max-model-len", "512", "--served-model-name", NAME]


@pytest.fixture(scope="module")
def two_arms(talker: Path) -> Iterator[TinyServer]:
    arms = ["--ab", "other:scheduler=ljf,kv=contiguous", "--split", "0.5"]
    with serving(*flags(talker), *arms, model=str(talker / "target")) as server:
        yield server


def over(server: TinyServer, row: Conversation, prompt: str, session: str = "") -> httpx.Response:
    return server.post(row.path, body(row, prompt, {"model": NAME}), headers={"X-Session-Id": session})


@pytest.mark.slow
def test_arms_say_the_same(row: Conversation, two_arms: TinyServer, make_talker: MakeTalker) -> None:
    plain = make_talker({})
    for prompt in PROMPTS:
        responses = [over(two_arms, row, prompt, f"session {number}") for number in range(12)]
        assert len({response.headers["x-turnout-arm"] for response in responses}) == 2
        (expected,) = _alone(plain, row, prompt)
        assert all(row.whole(_content(response)) == expected for response in responses)


@pytest.mark.slow
def test_an_engine_that_dies_meanwhile_changes_no_token(talker: Path, make_talker: MakeTalker) -> None:
    plain = make_talker({})
    with (
        serving(*flags(talker), "--engine-restarts", "5", model=str(talker / "target")) as server,
        ThreadPoolExecutor(len(CONVERSATIONS)) as pool,
    ):
        begun = threading.Barrier(len(CONVERSATIONS) + 1)
        streams = [pool.submit(streamed, server, row, begun) for row in CONVERSATIONS]
        begun.wait(60)
        (engine,) = [each for each in psutil.Process(server.popen.pid).children() if _is_engine(each)]
        os.kill(engine.pid, signal.SIGKILL)
        for row, stream in zip(CONVERSATIONS, streams, strict=True):
            assert [row.streamed(events(stream.result()))] == _alone(plain, row, PROMPTS[0])
        assert "another engine has taken over" in server.text()


def streamed(server: TinyServer, row: Conversation, begun: threading.Barrier) -> str:
    """A stream's text; `begun` is passed when its first bytes have come."""
    asked = body(row, PROMPTS[0], {"model": NAME, "stream": True})
    with httpx.stream("POST", server.url + row.path, json=asked, timeout=120) as response:
        pieces = response.iter_text()
        first = next(pieces)
        begun.wait(60)
        return first + "".join(pieces)


def _is_engine(process: psutil.Process) -> bool:
    return any("engine.main" in part for part in process.cmdline())
