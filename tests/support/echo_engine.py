"""An engine that repeats its prompt for ever, so that tests know what to expect, with the real step loop.

Choice i begins with the prompt's token i. A request's ``user``, the engine's ``client``, makes it misbehave,
see `MOODS`.
"""

from __future__ import annotations

import atexit
import errno
import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import echo_policies

from turnout.config import EngineConfig
from turnout.core.clock import monotonic
from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.errors import ConfigError, ModelError, NoRoom, RequestError
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.kv import PoolSize, PrefixAnnouncer
from turnout.core.interfaces.logits_processor import LogitsProcessor
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.decision import Continuation
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Ready
from turnout.core.types.plan import Chunk, Logits, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.predictors.max_tokens import MaxTokens

for _needed in os.environ.get("ECHO_IMPORTS", "").split():
    importlib.import_module(_needed)  # what a real engine has loaded by the time that it serves

VOCABULARY = 300
EOS = 0
CONTEXT = 512
POOL = 65536
BYTES_PER_TOKEN = 1000
KERNELS = "ECHO_KERNELS"
"""Variable: what `auto` chooses; with `` only`` behind it, nothing else can be had."""
DOOM = 20
"""Tokens after which a doomed request ends the process."""


def _fail() -> None:
    raise RuntimeError("the echo engine failed")


MOODS: dict[str, Callable[[], object]] = {
    "brisk": lambda: time.sleep(0.005),
    "slow": lambda: time.sleep(0.02),
    "napping": lambda: time.sleep(1),
    "stuck": lambda: time.sleep(3),
    "killed": lambda: os.kill(os.getpid(), signal.SIGBUS),
    "failing": _fail,
}


def _kernels(wanted: str) -> str:
    own, _, only = os.environ.get(KERNELS, "torch").partition(" ")
    if only and wanted not in ("auto", own):
        raise ConfigError(f"cpu_kernels={wanted}: there are none")
    return own if wanted == "auto" else wanted


class EchoRunner:
    def run(self, plan: Plan) -> Logits:
        for mood in {chunk.sequence.request.spec.client for chunk in plan.chunks} & MOODS.keys():
            MOODS[mood]()
        rows = {chunk.sequence: range(chunk.rows) for chunk in plan.chunks if chunk.rows}
        return Logits([], rows, {chunk.sequence: _scores(chunk) for chunk in plan.chunks if chunk.scored})


def _scores(chunk: Chunk) -> list[TokenLogprobs]:
    """A prompt's token at position p has log-probability -p, and one likelier than itself beside it."""
    prompt = chunk.sequence.request.prompt
    return [TokenLogprobs(prompt[p + 1], -(p + 1.0), [(prompt[p + 1] + 1, -0.25)]) for p in chunk.scored]


TOGETHER = threading.Barrier(2, timeout=60)


class Thinking(LogitsProcessor):
    """Thinks of what it is asked to choose before it says anything."""

    thoughts: ClassVar[dict[str, Callable[[], object]]] = {
        "long": lambda: time.sleep(2),
        "together": lambda: TOGETHER.wait(),
        "bad": lambda: _refuse("that is not one of the choices"),
        "broken": _fail,
    }
    extra_args = ("thought",)

    def wants(self, params: SamplingParams) -> bool:
        return params.structured_outputs is not None or "thought" in params.extra_args

    def prepare(self, spec: RequestSpec) -> Callable[[], object] | None:
        if "thought" in spec.params.extra_args:
            return self.thoughts[str(spec.params.extra_args["thought"])]
        form = spec.params.structured_outputs
        return self.thoughts.get(form.choice[0]) if form and form.choice else None

    def apply(self, logits: object, rows: object) -> None:
        raise AssertionError("the echo engine does not look at logits")


def _refuse(reason: str) -> None:
    raise RequestError(reason, "structured_outputs")


class Echo(Decoding):
    resumes = True

    def __init__(self, shift: int = 0) -> None:
        """`shift` is added to each token: other weights give other tokens."""
        self._shift = shift

    def accepts(self, params: SamplingParams) -> bool:
        return True

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        for request in requests:
            if request.spec.client == "confused":
                raise RuntimeError("what did you say?")
            if request.spec.client == "doomed" and len(request.live[0].output) >= DOOM:
                os.kill(os.getpid(), signal.SIGSEGV)
            if request.forks == 0 and request.params.n > 1:
                (parent,) = request.live
                yield from (self._say(parent, index) for index in range(request.params.n))
            else:
                yield from (self._say(sequence, sequence.index) for sequence in request.live)

    def _say(self, sequence: TokenSequence, index: int) -> Continuation:
        prompt, count = sequence.request.prompt, sequence.request.params.logprobs
        token = prompt[(len(sequence.output) + index) % len(prompt)] + self._shift
        top = [((token + rank) % VOCABULARY, -0.5 - rank) for rank in range(count or 0)]
        details = None if count is None else [TokenLogprobs(token, -0.5, top)]
        return Continuation(sequence, [token], -0.5, details)


@dataclass
class EchoEngine:
    """As `AssembledEngine`, without torch."""

    engine: Engine
    ready: Ready
    registry: Registry
    scheduler: str

    def set_scheduler(self, spec: str) -> str:
        if spec == "broken":
            raise RuntimeError("the command failed")
        self.engine.scheduler.policy = self.registry.create("scheduler", spec)
        self.scheduler = spec
        return spec


STARTS = "ECHO_STARTS"
"""The environment variable that names a file: how each start of an engine goes, a line each, of `START`."""
START: dict[str, Callable[[], object]] = {
    "serves": lambda: None,
    "fails": _fail,
    "dies": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "finds no room": lambda: _raise(NoRoom("the weights take 2 GiB, but 1 GiB is free")),
    "has no descriptor": lambda: _raise_from(ConfigError("no compiler can be used"), errno.EMFILE),
    "is refused": lambda: _raise(ConfigError("the device is gone")),
}


def _raise(error: Exception) -> None:
    raise error


def _raise_from(error: Exception, number: int) -> None:
    raise error from OSError(number, os.strerror(number))


def _begin() -> None:
    """Go as the next line of the file says, if there is one."""
    if not (path := os.environ.get(STARTS)):
        return
    file = Path(path)
    first, *rest = file.read_text().splitlines() or ["serves"]
    file.write_text("\n".join(rest))
    START[first]()


def build(config: EngineConfig) -> EchoEngine:
    _begin()
    if config.model.endswith("broken"):
        atexit.register(time.sleep, 0.5)  # torch takes its time to leave, too
        raise ModelError("this model is broken")
    shift, kernels = config.dtype == "float16", _kernels(config.cpu_kernels)
    capacity = Capacity(tokens=256, sequences=config.max_num_seqs)
    registry = Registry.load(extra=[echo_policies])
    policy = registry.create("scheduler", config.scheduler)
    kv = registry.create("kv", config.kv, block_size=config.block_size)
    cache = kv.cache(
        PoolSize(POOL), GuardedEviction(registry.create("kv_eviction", config.kv_eviction or "lru"))
    )
    name_plugin(cache, title_of(kv, "kv"))
    scheduler = Scheduler(policy, cache, capacity, MaxTokens())
    limits = Limits(
        max_model_len=config.max_model_len or CONTEXT,
        vocab_size=VOCABULARY,
        max_waiting=config.max_waiting,
        eos_token_ids=frozenset({EOS}),
    )
    ready = Ready(
        model=config.model,
        max_model_len=limits.max_model_len,
        vocab_size=VOCABULARY,
        defaults={"temperature": 0.5},
        kv=config.kv,
        kv_bytes_per_token=BYTES_PER_TOKEN,
        fingerprint=f"echo-{1 + shift}" + ("-native" if kernels == "native" else ""),
        announces=isinstance(cache, PrefixAnnouncer) and cache.announces,
        resumes=True,
        cpu_kernels=kernels,
        identity={
            "model": "other" if "other" in config.model else "echo",
            "dtype": config.dtype,
            "tokenizer": "foreign" if "foreign" in config.model else "",
        },
        summary=["an echo engine"],
    )
    processors = LogitsProcessors([("thinking", Thinking())])
    engine = Engine(scheduler, EchoRunner(), [Echo(shift)], limits, monotonic, processors=processors)
    return EchoEngine(engine, ready, registry, config.scheduler)
