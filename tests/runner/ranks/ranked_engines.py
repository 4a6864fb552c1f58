"""Engines over ranks, and what they are asked."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from turnout import LLM, SamplingParams
from turnout.core.errors import RankLost

__all__ = ["KV_BYTES", "answers", "asked", "children", "engine", "kill_the_follower", "prompts"]

KV_BYTES = 2 * 2 * 2 * 16 * 4
"""Of a token of the random model: two layers, keys and values, two heads of 16 numbers."""


def prompts(count: int = 12) -> list[list[int]]:
    """Some begin alike, and some repeat themselves, so that n-grams are found."""
    rng = random.Random(3)
    shared = [rng.randrange(4, 160) for _ in range(40)]
    texts = []
    for number in range(count):
        own = [rng.randrange(4, 160) for _ in range(rng.randrange(3, 30))]
        texts.append((shared if number % 2 else []) + own * (1 + number % 3))
    return texts


def asked() -> list[SamplingParams]:
    kinds = [
        {"temperature": 0},
        {"temperature": 0.9, "seed": 5, "top_p": 0.8},
        {"temperature": 0.7, "seed": 9, "n": 3},
        {"temperature": 0, "logprobs": 2},
        {"temperature": 0, "prompt_logprobs": 1},
        {"n": 2, "use_beam_search": True, "beam_width": 3},
    ]
    return [SamplingParams(max_tokens=24, ignore_eos=True, **kinds[at % len(kinds)]) for at in range(12)]


def answers(llm: LLM) -> list:
    found = []
    for answer in llm.generate(prompts(), asked()):
        scores = [
            None if each is None else {token: round(value.logprob, 3) for token, value in each.items()}
            for each in answer.prompt_logprobs or ()
        ]
        found.append(([(out.token_ids, out.finish_reason) for out in answer.outputs], scores))
    return found


def engine(model, ranks: int = 1, tokens: int = 700, **options) -> LLM:
    """tokens: of KV memory; 700 are too few for all requests at once."""
    return LLM(
        model=str(model),
        tensor_parallel_size=ranks,
        **{"kv_memory": tokens * KV_BYTES, "max_model_len": 256, "dtype": "float32", **options},
    )


def kill_the_follower(together: LLM) -> None:
    """The engine ends, naming the rank."""
    (follower,) = children(os.getpid())
    os.kill(follower, signal.SIGKILL)
    params = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
    with pytest.raises(RankLost, match="rank 1"):
        together.generate(prompts(1), params)


def children(parent: int) -> list[int]:
    """Processes that run followers of this one."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError):  # it ended meanwhile
            status = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{entry}/cmdline").read_text()
            if int(status[1]) == parent and "turnout.runner.follower.main" in command:
                found.append(int(entry))
    return sorted(found)
