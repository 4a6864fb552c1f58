"""Engines whose ranks are on two machines, of which 127.0.0.2 is one, give the tokens of one process."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from family_checkpoints import write_checkpoint

from turnout import LLM, SamplingParams
from turnout.models.hub.resolve import resolve_model
from turnout.scripts.make_model import copy_tokenizer
from turnout.server.worker.keys import kept_keys

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """``turnout worker --ranks``, as the options that name it."""
    keys = tmp_path_factory.mktemp("keys") / "ranks.key"
    command = [sys.executable, "-m", "turnout", "worker", "--ranks", "--listen", "tcp://127.0.0.2:*"]
    process = subprocess.Popen([*command, "--key-file", str(keys)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr as log:
        line = next(line for line in iter(log.readline, "") if "listening at" in line)
        yield {"rank_workers": line.split("listening at ")[1].split()[0], "rank_key_file": str(keys)}
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    write_checkpoint("qwen3-moe", folder)
    copy_tokenizer(resolve_model("turnout-tiny"), folder)
    return folder


def tokens(model: Path, **options: Any) -> list[list[list[int]]]:
    """Of requests that are greedy, draw, want several choices, and search beams."""
    llm = LLM(str(model), kv_memory=2**22, max_model_len=128, dtype="float32", **options)
    rng = random.Random(1)
    prompts = [[rng.randrange(4, 160) for _ in range(rng.randrange(3, 40))] for _ in range(8)]
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.8, "seed": 4},
        {"temperature": 0.8, "seed": 5, "n": 2},
        {"n": 2, "use_beam_search": True, "beam_width": 2},
    ]
    params = [SamplingParams(max_tokens=16, ignore_eos=True, **kinds[at % len(kinds)]) for at in range(8)]
    answers = llm.generate(prompts, params, progress=False)
    return [[list(out.token_ids) for out in answer.outputs] for answer in answers]


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_parallel_size": 2},
        {"pipeline_parallel_size": 2},
        {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
        {"tensor_parallel_size": 2, "enable_expert_parallel": True},
    ],
    ids="-".join,
)
def test_two_machines_give_the_tokens_of_one_process(
    options: dict[str, Any], mixture: Path, there: dict[str, Any]
) -> None:
    assert tokens(mixture, **options, **there) == tokens(mixture)


def served(model: Path, workers: str, keys: Path | str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "turnout", "serve", str(model), "--port", "0", "--kv-memory", "4MiB"]
    command += ["--max-model-len", "128", "-pp", "2", "--rank-workers", workers]
    command += ["--rank-key-file", str(keys)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_a_start_with_another_key_ends_and_says_so(
    mixture: Path, there: dict[str, Any], tmp_path: Path
) -> None:
    """Previously rank 0 waited for the other rank to join for ever."""
    kept_keys(str(tmp_path / "other"))
    server = served(mixture, there["rank_workers"], tmp_path / "other")
    _, said = server.communicate(timeout=120)
    assert server.returncode == 1
    assert "Error: rank 1 of the engine exited with code 1; its last words were:\nthe worker at" in said
    assert "has other keys; give both machines one file" in said


def test_a_start_ends_where_a_rank_elsewhere_dies_before_it_has_joined(
    mixture: Path, there: dict[str, Any]
) -> None:
    def followers() -> list[psutil.Process]:
        mine = psutil.Process().children(recursive=True)
        return [each for each in mine if {"--rank=1", follower} <= {*command(each)}]

    def command(process: psutil.Process) -> list[str]:
        try:
            return process.cmdline()
        except psutil.Error:  # it has ended
            return []

    follower = "turnout.runner.follower.main"
    server = served(mixture, there["rank_workers"], there["rank_key_file"])
    deadline = time.monotonic() + 60
    while not (found := followers()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    found[0].kill()
    _, said = server.communicate(timeout=120)
    assert server.returncode == 1
    assert "Error: rank 1 of the engine" in said and "was ended by SIGKILL" in said
