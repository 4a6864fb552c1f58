"""Chat templates that never end or take all memory: the client gets 400, and the server lives."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import RunningServer, running

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ModelError, Overloaded, RequestError
from turnout.models.hub.resolve import resolve_model
from turnout.text.chat_template import ChatTemplate
from turnout.text.processes import pool
from turnout.text.prompt.template_process import TemplateProcesses
from turnout.text.tokenizer import Tokenizer, load_tokenizer

MESSAGES = [{"role": "user", "content": "hi"}]
LOOP = "{% for i in range(9999) %}"
END = "{% endfor %}"
BOMBS = {
    "loops": LOOP * 4 + END * 4,
    "loops that write": LOOP * 2 + "a" + END * 2 + LOOP * 3 + "a" + END * 3,
    "multiplied": "{{ 'a' * 10**10 }}",
    "doubled": "{% set n = namespace(s='a') %}" + LOOP + "{% set n.s = n.s ~ n.s %}" + END,
    "power": "{{ 10 ** (10 ** 9) }}",
    "padded": "{{ '%10000000000d' % 1 }}",
    "centred": "{{ 'a' | center(10**10) }}",
    "list": "{{ [0] * 10**10 }}",
    "recursive": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "nested": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "long": LOOP * 2 + "abcdefgh" + END * 2,
}


@pytest.fixture(scope="module")
def processes() -> TemplateProcesses:
    return TemplateProcesses()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("long", "loops that write") else [])
        for name in BOMBS
    ],
)
def test_a_template_bomb_is_refused_and_the_next_conversation_is_rendered(
    processes: TemplateProcesses, name: str
) -> None:
    with pytest.raises(RequestError, match="chat template") as refusal:
        processes.render(ChatTemplate(BOMBS[name], {}), MESSAGES)
    assert refusal.value.param == "messages"
    good = ChatTemplate("{{ bos }}{% for m in messages %}{{ m.content }}{% endfor %}{{ x }}", {"bos": "<s>"})
    assert processes.render(good, MESSAGES, x=2) == "<s>hi2"


def test_options_and_errors_are_those_of_the_template(processes: TemplateProcesses) -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.content }}|{% endfor %}", {})
    messages: list[dict[str, Any]] = [*MESSAGES, {"role": "assistant", "content": "you 你 \ud800"}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    assert processes.render(template, messages, **options) == template.render(messages, **options)
    with pytest.raises(RequestError, match="exclude each other") as refusal:
        processes.render(template, messages, continue_final_message=True)
    assert refusal.value.param == "continue_final_message"
    refusing = ChatTemplate("{{ raise_exception('no user') }}", {})
    with pytest.raises(RequestError, match="cannot render these messages: no user"):
        processes.render(refusing, messages)


def test_a_process_that_has_ended_is_replaced(processes: TemplateProcesses) -> None:
    template = ChatTemplate("a", {})
    assert processes.render(template, MESSAGES) == "a"
    for worker in processes._pool._idle:
        worker._process.kill()
        worker._process.wait()
    assert processes.render(template, MESSAGES) == "a"


def killing(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Something kills so many processes as they get a job; returns the processes that were asked."""
    asked: list[int] = []
    answer = pool._Worker.answer

    def killed(worker: pool._Worker, job: bytes, seconds: float) -> bytes | None:
        asked.append(worker._process.pid)
        if len(asked) <= times:
            worker._process.kill()
        return answer(worker, job, seconds)

    monkeypatch.setattr(pool._Worker, "answer", killed)
    return asked


def test_a_conversation_whose_process_is_killed_is_rendered_by_another(
    processes: TemplateProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = killing(monkeypatch, 1)
    assert processes.render(ChatTemplate("a", {}), MESSAGES) == "a"
    assert len(set(asked)) == 2


def test_a_conversation_that_may_kill_its_process_is_tried_twice(
    processes: TemplateProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = killing(monkeypatch, 9)
    with pytest.raises(RequestError, match="takes longer than 2 seconds, or too much memory"):
        processes.render(ChatTemplate("a", {}), MESSAGES)
    assert len(asked) == 2


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("turnout.text.processes.pool.subprocess.Popen", full)
    with pytest.raises(Overloaded, match="no process for chat templates can be started: Too many open"):
        TemplateProcesses().render(ChatTemplate("a", {}), MESSAGES)


def test_a_template_without_end_is_not_read(tmp_path: Path) -> None:
    shutil.copy(resolve_model("turnout-tiny") / "tokenizer.json", tmp_path)
    with (tmp_path / "chat_template.jinja").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ModelError, match=r"chat_template\.jinja has 1,000,000,000,000 bytes"):
        load_tokenizer(tmp_path)


@pytest.fixture(scope="module")
def served() -> Iterator[RunningServer]:
    """A template that a client's variable turns into a bomb."""
    source = "{% if bomb %}" + LOOP * 4 + END * 4 + "{% endif %}def f(a):"
    backend = load_tokenizer(resolve_model("turnout-tiny")).backend
    tokenizer = Tokenizer(backend, {"eos_token": "<|endoftext|>"}, {"default": source})
    config = EngineConfig(model="turnout-tiny", device="cpu", kv_memory="16MiB")
    with running(tokenizer, config, ServerConfig(), factory="turnout.runner.assembly:build_engine") as server:
        yield server


def test_a_bomb_that_a_client_sets_off(served: RunningServer) -> None:
    def ask(**variables: Any) -> httpx.Response:
        return served.post(
            "/v1/chat/completions",
            messages=MESSAGES,
            max_tokens=4,
            temperature=0,
            chat_template_kwargs=variables,
        )

    before = ask().json()["choices"][0]["message"]["content"]
    bomb = ask(bomb=True)
    assert bomb.status_code == 400
    assert bomb.json()["error"]["param"] == "messages"
    assert "takes longer than 2 seconds" in bomb.json()["error"]["message"]
    assert served.http.get("/health").status_code == 200
    assert ask().json()["choices"][0]["message"]["content"] == before
