"""`serve` with two arms: how they start, what is refused, what is printed, that no process is left behind."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from running_server import eventually
from server_process import ServerProcess
from tokenizers import Tokenizer as Backend
from tokenizers import models

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.types.messages import Ready
from turnout.lab.ab.live_trial import LiveTrial
from turnout.server.fleet.ab_test import ABTest, check_memory, check_ready, check_vocabularies
from turnout.server.fleet.arms import ServedArm
from turnout.text.tokenizer import Tokenizer

SCRIPT = """
import sys
from turnout.cli.ab import live_test
from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import TurnoutError
from turnout.server.serve import serve

model, arm, factory = sys.argv[1:]
engine, server = EngineConfig(model=model), ServerConfig(port=0, ab=arm, split=0.2, served_model_name="polly")
try:
    code = serve(engine, server, live_test(engine, server), factory=factory)
except TurnoutError as error:
    code = f"{type(error).__name__}: {error}"
assert "torch" not in sys.modules
sys.exit(code)
"""


Launch = Callable[[str], ServerProcess]


@pytest.fixture
def launch(folder: Path) -> Iterator[Launch]:
    """launch(arm): a server of the echo engine and of that arm."""
    launched: list[ServerProcess] = []

    def launch(arm: str) -> ServerProcess:
        launched.append(ServerProcess(SCRIPT, folder, arm))
        return launched[-1]

    yield launch
    for process in launched:
        process.end()


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_both_start_and_both_end(launch: Launch) -> None:
    process = launch("long:scheduler=ljf,max-num-seqs=4")
    url = process.url()
    said = [line.rstrip("\n") for line in process.output]
    assert said[0] == "arm base: 80% of the sessions"
    assert said[2] == "arm long: 20% of the sessions, scheduler=ljf, max_num_seqs=4"
    assert said[-2].startswith("KV pools in host memory: base 0.00 GiB + long 0.00 GiB = 0.00 GiB, of ")
    assert said[-1] == f"Turnout serving polly at {url}"
    children = process.children()
    assert len(children) == 2
    promoted = httpx.post(f"{url}/admin/ab", json={"action": "promote", "arm": "long"}, timeout=10)
    assert promoted.status_code == 200
    eventually(lambda: len(process.children()) == 1)
    process.popen.send_signal(signal.SIGINT)
    assert process.wait() == 0
    eventually(lambda: all(map(gone, children)))


def test_an_arm_that_cannot_be_is_named(launch: Launch, folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.symlink_to(folder)
    process = launch(f"bad:model={broken}")
    assert process.wait() == 1
    assert process.output[-1] == "EngineGone: arm 'bad': this model is broken\n"


@pytest.mark.slow
def test_arms_of_different_contexts_are_refused(launch: Launch) -> None:
    process = launch("short:max-model-len=100")
    assert process.wait() == 1
    assert process.output == [
        "ConfigError: arm 'short': its context is 100 tokens, and that of 'base' 512; give both the same "
        "--max-model-len, so that no arm refuses what the other serves\n"
    ]


# ------------------------------------------------------------------ what two must have in common


class Assembled:
    """As a client whose engine is ready."""

    failure = None

    def __init__(self, longest: int = 512, host_memory: int = 0) -> None:
        self.ready = Ready(
            model="m",
            max_model_len=longest,
            vocab_size=300,
            defaults={},
            kv="paged",
            kv_bytes_per_token=1,
            host_memory=host_memory,
            summary=[],
        )


def arms(tokenizer: Tokenizer, *clients: Assembled) -> list[ServedArm]:
    names = ("base", "long")
    return [ServedArm(c, tokenizer, name) for name, c in zip(names, clients, strict=True)]  # type: ignore[arg-type]


def test_pools_that_do_not_fit_together_are_refused_with_the_sums(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.server.fleet.ab_test.free_host_memory", lambda: 5 * 2**30)
    fitting = arms(tokenizer, Assembled(host_memory=3 * 2**30), Assembled(host_memory=2 * 2**30))
    assert check_memory(fitting) == (
        "KV pools in host memory: base 3.00 GiB + long 2.00 GiB = 5.00 GiB, of 5.00 GiB free"
    )
    with pytest.raises(ConfigError) as error:
        check_memory(arms(tokenizer, Assembled(host_memory=3 * 2**30), Assembled(host_memory=3 * 2**30)))
    assert str(error.value) == (
        "the arms' KV pools ask for base 3.00 GiB + long 3.00 GiB = 6.00 GiB of host memory, but 5.00 GiB is "
        "free with the weights loaded; ask for less with --kv-memory, for an arm NAME:kv-memory=SIZE"
    )


def test_equal_contexts_are_enough(tokenizer: Tokenizer) -> None:
    check_ready(arms(tokenizer, Assembled(), Assembled()))


def test_other_token_ids_are_refused(folder: Path, tmp_path: Path) -> None:
    config = EngineConfig(model="echo")
    test = ABTest(
        "base", config, "owl", EngineConfig(model="owl"), {"model": "owl"}, 0.5, LiveTrial("base", "owl")
    )
    check_vocabularies(test, folder, folder)
    Backend(models.BPE({"hoot": 0}, [])).save(str(tmp_path / "tokenizer.json"))
    what = "arm 'owl': model 'owl' has another vocabulary than 'echo' (token 0 is "
    with pytest.raises(ConfigError, match=re.escape(what)):
        check_vocabularies(test, folder, tmp_path)
