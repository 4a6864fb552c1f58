"""Makes one run, or measures quality once, in a process of its own.

It is ``python -m turnout.lab.compare.runs.worker``, so nothing that an arm leaves behind (caches, compiled
kernels, memory, threads) meets the next one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, TurnoutError
from turnout.core.process import begin_program, exit_with_parent, freeze_garbage
from turnout.lab.compare.runs.driver import Driver
from turnout.lab.compare.runs.protocol import Message, Order, RunDone, RunFailed, RunProgress, RunTask
from turnout.lab.compare.runs.requests import JobRequests, warm_up
from turnout.lab.compare.runs.run import Run
from turnout.lab.simulation.recording import Recording, write_trace
from turnout.lab.workloads.source import load_workload

__all__ = ["answer", "main"]

logger = logging.getLogger(__name__)


def main() -> None:
    begin_program()
    logging.basicConfig(level="WARNING", format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the comparison ends us
    lines = _own_stdout()
    line = sys.stdin.buffer.readline()
    if not line:
        return
    exit_with_parent()
    answer(line, lines)


def answer(order: bytes, lines: BinaryIO) -> None:
    """Carries out an order as it is sent; all that there is to say of it goes to `lines`."""
    try:
        _send(lines, _carried_out(msgspec.json.decode(order, type=Order), lines))
    except TurnoutError as error:
        _send(lines, RunFailed(str(error), is_config_error=isinstance(error, ConfigError)))
    except Exception as error:
        logger.exception("the process failed")
        _send(lines, RunFailed(f"{type(error).__name__}: {error}", is_config_error=False))


def _carried_out(order: Order, lines: BinaryIO) -> Message:
    if isinstance(order, RunTask):
        return RunDone(_run(order, lines))
    from turnout.lab.compare.runs.compare_predictions import (
        compare_predictions,  # torch; an idle worker should be there at once
    )

    return compare_predictions(order)


def _run(task: RunTask, lines: BinaryIO) -> Run:
    from turnout.runner.assembly import build_engine  # torch, as above

    workload = load_workload(task.workload, task.seed)
    assembled = build_engine(EngineConfig(**task.config))
    engine, ready = assembled.engine, assembled.ready

    def requests(seed: int) -> JobRequests:
        return JobRequests(workload, seed, ready.vocab_size, ready.defaults, task.temperature)

    first = warm_up(workload, task.warm_up)
    for _ in Driver(engine, first, requests(~task.seed)).records():
        pass
    before = engine.stats()
    recording = Recording(task.arm, assembled.scheduler, "measured") if task.trace else None
    driver = Driver(engine, workload, requests(task.seed), recording=recording)
    records = []
    with freeze_garbage():
        for record in driver.records():
            records.append(record)
            _send(lines, RunProgress(len(records), len(workload.jobs)))
    records.sort(key=lambda record: record.index)
    after = engine.stats()
    if recording is not None:
        write_trace(Path(task.trace), [recording])
    return Run(
        task.arm,
        task.repeat,
        records,
        driver.samples(),
        after.preemptions - before.preemptions,
        after.policy_faults - before.policy_faults,
        ready.summary,
        task.trace,
    )


def _send(lines: BinaryIO, message: Message) -> None:
    lines.write(msgspec.json.encode(message) + b"\n")
    lines.flush()


def _own_stdout() -> BinaryIO:
    """What any library prints goes to standard error; the real standard output is for messages alone."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return lines


if __name__ == "__main__":
    main()
