"""What KV groups save, and what they cost in prefixes found, for the shape of Gemma 3 (4B).

29 of its 34 layers see 1,024 positions. The real scheduler and bookkeeping serve seeded workloads without a
model (`turnout.lab.simulation.scripted`), so figures are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.scheduler import Capacity
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.lab.results.markdown import markdown_table, write_marked
from turnout.lab.simulation.scripted.play import Arrival, Pace, Play
from turnout.lab.simulation.scripted.script import scripted_request
from turnout.lab.simulation.scripted.workloads import Sessions, Templates
from turnout.lab.workloads.lengths import Lognormal
from turnout.models.families import Llama
from turnout.models.random.shapes import Shape, config_of

REGISTRY = Registry.load()
LONGEST = 32_768
LAYERS, EVERY, WINDOW = 34, 6, 1024
STEP, RUNNING = 2048, 6
"""Tokens of a step at most, and sequences that run at a time: there are always more that wait."""
UNLIMITED = 1 << 22
ARMS = {"all kept": "paged:groups=false", "groups": "paged"}


def gemma() -> ModelSpec:
    full = LayerAttention(heads=8, kv_heads=4, key_dim=256, value_dim=256)
    rules = [full if layer % EVERY == EVERY - 1 else replace(full, window=WINDOW) for layer in range(LAYERS)]
    spec: ModelSpec = Llama().spec(config_of(Shape(64, LAYERS, 8, 4, 64, 256), "llama"))
    return replace(spec, attention=tuple(rules), max_positions=LONGEST)


SPEC = gemma()


def cache(backend: str, memory: float) -> KVCache:
    """memory: in positions of all 34 layers, without those that groups round up to."""
    kv = REGISTRY.create("kv", backend).for_model(SPEC)
    plain = REGISTRY.create("kv", "contiguous").bytes_per_token(SPEC, 2)
    tokens = int(memory * plain // kv.bytes_per_token(SPEC, 2))
    return kv.cache(PoolSize(tokens, step=STEP), REGISTRY.create("kv_eviction", "lru"))


def memory_of(backend: str, positions: float) -> float:
    """Positions of a backend in those of all 34 layers."""
    kv = REGISTRY.create("kv", backend).for_model(SPEC)
    plain = REGISTRY.create("kv", "contiguous").bytes_per_token(SPEC, 2)
    return positions * kv.bytes_per_token(SPEC, 2) / plain


def play(kv: KVCache) -> Play:
    policy = REGISTRY.create("scheduler", "fcfs")
    predictor = REGISTRY.create("length_predictor", "max_tokens")
    # Prompts take so little time that how many of them are found does not change what runs together.
    pace = Pace(token=2e-5)
    return Play(kv, policy, predictor, Capacity(STEP, RUNNING), max_model_len=LONGEST, pace=pace)


# ------------------------------------------------------------------ a running sequence


def held() -> str:
    """What one sequence holds, of what it would hold in full."""
    rows = []
    for prompt in (1024, 4096, 16_384, 32_000):
        spec = scripted_request("a", [1 + n % 97 for n in range(prompt)], 128, seed=1)
        shares = []
        for backend in ARMS.values():
            kv = cache(backend, 2 * LONGEST)
            taken = [memory_of(backend, kv.snapshot().held) for _ in play(kv).steps([Arrival(0.0, spec)])]
            shares.append((max(taken[:-1]), taken[-2]))
        (full_most, full_end), (most, end) = shares
        rows.append((f"{prompt:,}", f"{most / full_most:.1%}", f"{end / full_end:.1%}"))
    return markdown_table(("prompt", f"most, chunks of {STEP:,}", "while it decodes"), rows)


# ------------------------------------------------------------------ prefixes found


def talk() -> tuple[list[Arrival], Sessions | None]:
    sessions = Sessions(
        24,
        8,
        seed=5,
        system=Lognormal(3000, 0.3, most=6000),
        question=Lognormal(300, most=2000),
        answer=Lognormal(300, 0.8, most=1200),
        rate=100,
        longest=12_000,
    )
    return list(sessions.arrivals()), sessions


def documents() -> tuple[list[Arrival], Sessions | None]:
    texts = Templates(
        300, 100, seed=7, templates=20, template=Lognormal(6000, most=12_000), skew=0.7, answer=Lognormal(100)
    )
    return list(texts.arrivals()), None


WORKLOADS: Mapping[str, Callable[[], tuple[list[Arrival], Sessions | None]]] = {
    "conversations": talk,
    "documents": documents,
}


class Served(NamedTuple):
    hit_rate: float
    held: float
    """Positions, in the mean over the steps."""
    checkpoints: float
    """Positions of windows' blocks that are cached behind no sequence, for checkpoints; as `held`."""
    capacity: int

    def __str__(self) -> str:
        return f"{self.hit_rate:.1%}"


def served(workload: str, backend: str, memory: float) -> Served:
    arrivals, sessions = WORKLOADS[workload]()
    kv = cache(backend, memory)
    steps = total = 0
    checkpoints = 0.0
    for _ in play(kv).steps(arrivals, sessions.then if sessions else None):
        steps += 1
        total += kv.capacity - kv.free
        if steps % 50 == 0:
            now = kv.snapshot()
            cached = sum(group.cached for group in now.groups if group.window is not None)
            checkpoints += 50 * max(0.0, cached / max(1, len(now.groups)) - now.passed)
    found = Served(kv.snapshot().hit_rate, total / steps, checkpoints / steps, kv.capacity)
    click.echo(f"{workload} {backend}: {found!r}", err=True)
    return found


def prefixes() -> str:
    """Hit rates where sequences that run take so much of the memory: of that of all kept, or of its own."""
    kept, groups = ARMS.values()
    rows = []
    for workload in WORKLOADS:
        running = {arm: memory_of(arm, served(workload, arm, UNLIMITED).held) for arm in ARMS.values()}
        for occupancy in (0.25, 0.9):
            full = served(workload, kept, running[kept] / occupancy)
            same = served(workload, groups, running[kept] / occupancy)
            own = served(workload, groups, running[groups] / occupancy)
            shares = f"{same.checkpoints / same.capacity:.0%}, {own.checkpoints / own.capacity:.0%}"
            rows.append((f"{workload}, {occupancy:.0%}", str(full), str(same), str(own), shares))
    headings = ("workload, held", "all kept", "groups, same memory", "groups, same share held", "checkpoints")
    return markdown_table(headings, rows)


PARTS: Mapping[str, Callable[[], str]] = {"held": held, "prefixes": prefixes}


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
