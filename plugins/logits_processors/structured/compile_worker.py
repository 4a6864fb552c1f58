"""A worker of the compile process: tries forms, one after the other, and may die at each."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
from llguidance import LLMatcher, LLTokenizer

from turnout.core import limits
from turnout.plugins.logits_processors.structured.compilation import compiled, in_thread, reason_of
from turnout.plugins.logits_processors.structured.frames import Job, Verdict, receive, send
from turnout.plugins.logits_processors.structured.masks.mask_time import TOO_LONG
from turnout.plugins.logits_processors.structured.sources import source

__all__ = ["TRIAL_STACK_MIB", "work"]

TRIAL_STACK_MIB = 8
"""The stack on which a form is compiled. The engine then compiles it on a larger one."""
MASK_STACK_MIB = 1
"""The stack on which its first mask is computed, smaller than any on which the engine computes masks."""
SLIM_BYTES = 64 * 2**20
"""What a worker may have grown by and be used again."""
PAGE = os.sysconf("SC_PAGE_SIZE")
STATM = Path("/proc/self/statm")
"""This process's memory, where the system tells it: all, resident, and more, in pages."""


def work(engine: socket.socket, vocabulary: LLTokenizer, specials: Mapping[str, int]) -> None:
    """Serves jobs until the engine closes its end, even in the middle of one."""
    _bound_memory()
    began = _resident()
    while (job := receive(engine, Job)) is not None:
        if job.last:
            os.nice(5)
        signal.setitimer(signal.ITIMER_PROF, job.seconds)
        verdict = _unless_closed(engine, job, vocabulary, specials)
        signal.setitimer(signal.ITIMER_PROF, 0)
        last = job.last or _resident() - began > SLIM_BYTES
        send(engine, msgspec.structs.replace(verdict, last=last))
        if last:
            return


def _bound_memory() -> None:
    """Makes allocations fail beyond the limit, and the process end without a core dump then."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if STATM.exists():
        most = int(STATM.read_text().split()[0]) * PAGE + limits.FORM_MEMORY.whole
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _resident() -> int:
    """Bytes of this process in memory; 0 where that is not known."""
    return int(STATM.read_text().split()[1]) * PAGE if STATM.exists() else 0


def _unless_closed(
    engine: socket.socket, job: Job, vocabulary: LLTokenizer, specials: Mapping[str, int]
) -> Verdict:
    """Returns the verdict on a job; ends the process when the engine no longer wants it."""
    verdicts: list[Verdict] = []
    done, say = os.pipe()

    def run() -> None:
        verdicts.append(_verdict(job, vocabulary, specials))
        os.write(say, b".")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready, _, _ = select.select([engine.fileno(), done], [], [])
    if done not in ready:  # the engine sends nothing before it has the verdict: its end is closed
        os._exit(0)
    thread.join()
    os.close(done)
    os.close(say)
    return verdicts[0]


def _verdict(job: Job, vocabulary: LLTokenizer, specials: Mapping[str, int]) -> Verdict:
    before = _resident()
    try:
        text, first = in_thread(lambda: _tried(job, vocabulary, specials), TRIAL_STACK_MIB)
    except RecursionError:
        return Verdict(reason="it is nested too deeply")
    except MemoryError:
        return Verdict(reason=f"it takes more than {limits.FORM_MEMORY.amount} of memory; make it smaller")
    except Exception as error:
        return Verdict(reason=reason_of(str(error)) or type(error).__name__)
    first = first if job.form.free is not None else b""
    return Verdict(source=text, first=first, memory=max(_resident() - before, len(text)))


def _tried(job: Job, vocabulary: LLTokenizer, specials: Mapping[str, int]) -> tuple[str, bytes]:
    """Returns a form's source and its first mask, if it can be compiled and begun."""
    text = source(job.form, specials)
    matcher = compiled(text, vocabulary)
    seconds, first = in_thread(lambda: _first_mask(matcher), MASK_STACK_MIB)
    if matcher.is_error():
        raise ValueError(reason_of(matcher.get_error()))
    if seconds > limits.FORM_MASKS.most:
        raise ValueError(TOO_LONG)
    return text, first


def _first_mask(matcher: LLMatcher) -> tuple[float, bytes]:
    """Computes a matcher's mask. Returns the processor time that it took, in seconds, and the mask."""
    began = time.thread_time()
    mask = matcher.compute_bitmask()
    return time.thread_time() - began, mask
