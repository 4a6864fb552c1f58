"""The loop of every worker: a line of JSON in, jobs to serve all at once; a line out, the seconds it took and
the tokens it generated.

A worker runs in the environment of its peer, so that this file and the workers import nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

Jobs = list[tuple[list[int], int]]
"""Prompt and how many tokens to generate, exactly."""

# Libraries write to standard output as they please: answers get a descriptor of their own.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def serve(run: Callable[[Jobs], int]) -> None:
    """Until standard input ends. The first answer comes when the model is there: it is null.

    `run` serves jobs and returns how many tokens it generated.
    """
    _say(None)
    for line in sys.stdin:
        jobs: Jobs = [(prompt, output) for prompt, output in json.loads(line)]
        started = time.perf_counter()
        tokens = run(jobs)
        _say([time.perf_counter() - started, tokens])


def _say(answer: list[float] | None) -> None:
    print(json.dumps(answer), file=_answers, flush=True)
