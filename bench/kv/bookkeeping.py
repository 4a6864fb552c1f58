"""The figures of docs/explanation/kv.md that need no tensors: waste, sharing, eviction.

The real scheduler and the real KV bookkeeping serve seeded workloads; only the model is left out
(`turnout.lab.simulation.scripted`), so the figures are the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.scheduler import Capacity
from turnout.core.types.request import RequestSpec
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.lab.simulation.scripted.play import Arrival, Play
from turnout.lab.simulation.scripted.script import scripted_request
from turnout.lab.simulation.scripted.workloads import Scans, Sessions, Templates, random_tokens, sharegpt
from turnout.lab.workloads.lengths import Lognormal

REGISTRY = Registry.load()

CONTEXT = 2048
POOL = 15_696
"""Positions: those of a 13B model on a 40 GB A100 in Kwon et al. 2023, Table 1, in whole blocks."""
REQUESTS = 1000
SLOTS = 256
STEP = 2048
"""Tokens computed at most."""
BACKLOG = 256
"""Requests that run or wait, as long as there are more to come."""


def cache(backend: str, tokens: int, eviction: str = "lru") -> KVCache:
    return REGISTRY.create("kv", backend).cache(PoolSize(tokens), REGISTRY.create("kv_eviction", eviction))


def play(kv: KVCache, *, step: int = STEP, longest: int = CONTEXT) -> Play:
    policy = REGISTRY.create("scheduler", "fcfs")
    predictor = REGISTRY.create("length_predictor", "max_tokens")
    return Play(kv, policy, predictor, Capacity(step, SLOTS), max_model_len=longest)


# ------------------------------------------------------------------ waste

Bound = Callable[[int, int], int]
"""From the lengths of prompt and output to the `max_tokens` that the client gave."""


def exact(prompt: int, output: int) -> int:
    return output


def power_of_two(prompt: int, output: int) -> int:
    return min(CONTEXT - prompt, 1 << (output - 1).bit_length())


def whole_context(prompt: int, output: int) -> int:
    return CONTEXT - prompt


class PoolLoad(NamedTuple):
    """Means over the steps with requests waiting, so that memory is what limits; and totals."""

    waste: float
    used: float
    """Share of the whole pool with a computed token in it."""
    running: float
    preemptions: int
    recomputed: float
    """Tokens computed again, of all computed."""


def load(backend: str, bound: Bound) -> PoolLoad:
    kv = cache(backend, POOL)
    requests = _sharegpt_requests(bound)
    first = [Arrival(0.0, spec) for _, spec in zip(range(BACKLOG), requests, strict=False)]
    steps, waste, used, running = 0, 0.0, 0.0, 0
    for engine in play(kv).steps(
        first, lambda _, now: (Arrival(now, spec) for _, spec in zip("1", requests, strict=False))
    ):
        stats = engine.stats()
        if stats.waiting:
            snapshot = kv.snapshot()
            steps += 1
            waste += snapshot.waste
            used += snapshot.computed / snapshot.capacity
            running += stats.running
    least = sum(prompt + output - 1 for prompt, output in _lengths())
    again = 1 - least / stats.computed_tokens
    return PoolLoad(waste / steps, used / steps, running / steps, stats.preemptions, again)


def _lengths() -> list[tuple[int, int]]:
    return sharegpt(REQUESTS, longest=CONTEXT, seed=0)


def _sharegpt_requests(bound: Bound) -> Iterator[RequestSpec]:
    rng = random.Random(1)
    for number, (prompt, output) in enumerate(_lengths()):
        most = bound(prompt, output)
        yield scripted_request(f"chat-{number}", random_tokens(rng, prompt), output, seed=number, bound=most)


def waste() -> str:
    arms = [
        ("`paged`, blocks of 16", "paged", whole_context),
        ("`contiguous`, length known exactly", "contiguous", exact),
        ("`contiguous`, rounded up to a power of two", "contiguous", power_of_two),
        ("`contiguous`, as long as the context", "contiguous", whole_context),
    ]
    rows = []
    for name, backend, bound in arms:
        found = load(backend, bound)
        rows.append(
            (
                name,
                f"{found.waste:.1%}",
                f"{found.used:.1%}",
                f"{found.running:.1f}",
                f"{found.preemptions:,}",
                f"{found.recomputed:.0%}",
            )
        )
    headings = ("", "reserved in vain", "pool in use", "running", "preemptions", "computed again")
    return markdown_table(headings, rows)


# ------------------------------------------------------------------ sharing


def prefix() -> str:
    """16 requests with a prefix of 512 tokens in common: how many tokens are computed."""
    rows = []
    for when, gap in (("300 ms apart", 0.3), ("1 ms apart", 0.001), ("in the same step", 0.0)):
        counts = [_computed("paged", gap, step) for step in (512, 2048, 8192)]
        rows.append((when, *(f"{count:,}" for count in counts)))
    least, alone = 512 + 16 * (32 + 63), _computed("paged:prefix_caching=false", 0.3, 2048)
    rows += [
        ("*each token once*", *[f"{least:,}"] * 3),
        ("*without prefix caching*", *[f"{alone:,}"] * 3),
    ]
    return markdown_table(("arrival", "512 tokens a step", "2,048", "8,192"), rows)


def _computed(backend: str, gap: float, step: int) -> int:
    rng = random.Random(2)
    common = random_tokens(rng, 512)
    specs = [scripted_request(str(n), common + random_tokens(rng, 32), 64, seed=n) for n in range(16)]
    arrivals = [Arrival(number * gap, spec) for number, spec in enumerate(specs)]
    (*_, engine) = play(cache(backend, 1 << 16), step=step).steps(arrivals)
    return engine.stats().computed_tokens


def siblings() -> str:
    shapes = [(2048, 256), (512, 256), (161, 338)]
    rows = []
    for prompt, output in shapes:
        sampled, beams = held_share(prompt, output, n=8), held_share(prompt, output, n=4, beam=True)
        cells = (*(f"{share:.0%}" for share in sampled), *(f"{share:.0%}" for share in beams))
        rows.append((f"{prompt:,} + {output}", *cells))
    return markdown_table(
        ("prompt + output", "n = 8, mean", "n = 8, at the end", "beam 4, mean", "beam 4, at the end"), rows
    )


def held_share(prompt: int, output: int, *, n: int, beam: bool = False) -> tuple[float, float]:
    """Memory that a request's sequences hold, of what they would unshared: mean over its steps, and last."""
    kv = cache("paged", 1 << 16)
    spec = scripted_request("a", random_tokens(random.Random(3), prompt), output, seed=4, n=n)
    if beam:
        spec = msgspec.structs.replace(spec, params=msgspec.structs.replace(spec.params, temperature=0.0))
    shares = []
    for engine in play(kv, longest=4096).steps([Arrival(0.0, spec)]):
        snapshot, running = kv.snapshot(), engine.scheduler.queues.running
        live = [sequence for request in running for sequence in request.live]
        if len(live) == n:
            alone = sum(-(-sequence.computed // snapshot.unit) * snapshot.unit for sequence in live)
            shares.append(snapshot.held / alone)
    return sum(shares) / len(shares), shares[-1]


# ------------------------------------------------------------------ eviction, and the grain of sharing

Workload = Callable[[], tuple[list[Arrival], Sessions | None]]


def talk() -> tuple[list[Arrival], Sessions | None]:
    sessions = Sessions(100, 8, seed=5)
    return list(sessions.arrivals()), sessions


def talk_and_scans() -> tuple[list[Arrival], Sessions | None]:
    arrivals, sessions = talk()
    return [*arrivals, *Scans(100, 0.5, seed=6).arrivals()], sessions


def documents() -> tuple[list[Arrival], Sessions | None]:
    texts = Templates(1500, 5.0, seed=7, templates=200, template=Lognormal(800, 0.5, most=3000), skew=1.0)
    return list(texts.arrivals()), None


def instructions() -> tuple[list[Arrival], Sessions | None]:
    return list(Templates(2000, 20.0, seed=8).arrivals()), None


def books() -> tuple[list[Arrival], Sessions | None]:
    texts = Templates(600, 1.0, seed=9, templates=60, template=Lognormal(8000, most=30_000))
    return list(texts.arrivals()), None


class Served(NamedTuple):
    """After a workload."""

    hit_rate: float
    computing: float
    """Seconds, on the virtual clock."""


def served(workload: Workload, tokens: int, backend: str = "paged", eviction: str = "lru") -> Served:
    arrivals, sessions = workload()
    kv = cache(backend, tokens, eviction)
    playing = play(kv, longest=1 << 15)
    for _ in playing.steps(arrivals, sessions.then if sessions else None):
        pass
    return Served(kv.snapshot().hit_rate, playing.computing)


UNLIMITED = 1 << 21


def eviction() -> str:
    """Tokens found, and computing saved beside no prefix caching at all."""
    workloads: list[tuple[str, Workload, int]] = [
        ("conversations", talk, 40_000),
        ("conversations and scans", talk_and_scans, 40_000),
        ("documents", documents, 40_000),
        ("books", books, 200_000),
    ]
    names, rows = ("lru", "lfu", "cost"), []
    for what, workload, tokens in workloads:
        nothing = served(workload, UNLIMITED, "paged:prefix_caching=false").computing
        found = [served(workload, tokens, eviction=name) for name in names]
        kept = served(workload, UNLIMITED)
        rows.append((f"{what}, {tokens:,}", *(_saved(each, nothing) for each in (*found, kept))))
    headings = ("workload, positions", *(f"`{name}`" for name in names), "*all kept*")
    return markdown_table(headings, rows)


def _saved(found: Served, nothing: float) -> str:
    return f"{found.hit_rate:.1%} / {1 - found.computing / nothing:.1%}"


def grain() -> str:
    """Blocks of one token are shared as a radix tree would share: to the token."""
    arms: list[tuple[str, Workload, int]] = [
        ("conversations, 40,000", talk, 40_000),
        ("documents, 40,000", documents, 40_000),
        ("short instructions, 4,000", instructions, 4_000),
    ]
    sizes, rows = (1, 4, 8, 16, 32), []
    for what, workload, tokens in arms:
        rates = [served(workload, tokens, f"paged:block_size={size}").hit_rate for size in sizes]
        rows.append((what, *(f"{rate:.1%}" for rate in rates)))
    return markdown_table(
        ("workload, positions", "to the token", *(f"blocks of {size}" for size in sizes[1:])), rows
    )


PARTS: Mapping[str, Callable[[], str]] = {
    "waste": waste,
    "prefix": prefix,
    "siblings": siblings,
    "eviction": eviction,
    "grain": grain,
}


@click.command()
@click.option("--write", type=click.Path(path_type=Path, exists=True), help="Put the tables into this file.")
@click.argument("parts", nargs=-1, type=click.Choice(list(PARTS)))
def main(write: Path | None, parts: tuple[str, ...]) -> None:
    """Measure all PARTS, or those named."""
    for name in parts or PARTS:
        text = PARTS[name]()
        click.echo(f"{name}\n\n{text}\n")
        if write is not None:
            write_marked(write, name, text)


if __name__ == "__main__":
    main()
