"""A model's layers and head over several processes of one thread, and in one process of as many threads.

\b
The shape is that of 494M parameters (24 layers, width 896, a vocabulary of 151,936), with random numbers in
bfloat16; a step decodes one token of each of so many sequences. Ranks share out heads, MLPs and the
vocabulary, add up in shared memory within the native call, and rank 0 gathers the logits. Turns of both kinds
alternate; the table has medians. Nothing else should be computing.

\b
    python bench/ranks/layers.py --write docs/explanation/performance-cpu.md
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch
from torch import Tensor

from turnout.core.meeting import Meeting
from turnout.kernels import CpuKernels
from turnout.kernels.attention.stored import StoredVectors
from turnout.kernels.choice import native_kernels
from turnout.kernels.collectives.shm import SharedMemory
from turnout.kernels.compiled import BlockTables
from turnout.kernels.layers import GatedWeights, Heads, InPlace, LayerWeights, NativeLayers
from turnout.kernels.linears import FloatWeights
from turnout.lab.results.markdown import markdown_table, write_marked

WIDTH, LAYERS, HEADS, KEYS, DIM, INNER, VOCABULARY = 896, 24, 14, 2, 64, 4864, 151_936
CONTEXT, BLOCK = 64, 16
HALF = torch.bfloat16


class Share:
    """A rank's part of the model, with memory of its own for each layer's weights."""

    def __init__(self, kernels: CpuKernels, ranks: int, group: SharedMemory | None, sequences: int) -> None:
        self.kernels, self.group, self.sequences = kernels, group, sequences
        heads, keys, inner = HEADS // ranks, KEYS // ranks, INNER // ranks
        qkv = [_drawn(heads * DIM, WIDTH), _drawn(keys * DIM, WIDTH), _drawn(keys * DIM, WIDTH)]
        out, down = [_drawn(WIDTH, heads * DIM)], [_drawn(WIDTH, inner)]
        both = [_drawn(inner, WIDTH), _drawn(inner, WIDTH)]

        def packed(parts: list[Tensor]) -> FloatWeights:
            return FloatWeights(kernels.pack(parts), None)

        norms = [torch.ones(WIDTH, dtype=HALF)] * 2
        native = None if group is None else group.native_group
        layers = [
            LayerWeights(
                *(norms, packed(qkv), packed(out), GatedWeights(packed(both), packed(down))),
                *(Heads(heads, keys, DIM), 1e-6, 0, native),
            )
            for _ in range(LAYERS)
        ]
        self.head = kernels.pack([_drawn(VOCABULARY // ranks, WIDTH)])
        slots = sequences * CONTEXT
        pools = [
            (StoredVectors(each[0]), StoredVectors(each[1]))
            for each in torch.zeros(len(layers), 2, slots, keys, DIM, dtype=HALF)
        ]
        starts = torch.full((sequences,), CONTEXT - 1)
        tables = BlockTables(
            BLOCK,
            torch.arange(sequences),
            torch.ones(sequences, dtype=torch.int64),
            starts,
            torch.arange(0, slots, BLOCK).view(sequences, -1).contiguous(),
        )
        written = torch.arange(sequences) * CONTEXT + CONTEXT - 1
        self.place = InPlace(pools, [written], [tables])
        self.layers = NativeLayers(kernels, layers, pools)
        angles = torch.rand(sequences, 1, DIM)
        self.rotations = [(angles.cos().to(HALF), angles.sin().to(HALF))]

    def step(self) -> None:
        hidden = torch.ones(self.sequences, WIDTH, dtype=HALF)
        hidden, delta = self.layers(hidden, self.rotations, self.place)
        logits = self.kernels.linear(hidden + delta, self.head, None)
        if self.group is not None:
            self.group.gather(logits)

    def seconds(self, steps: int) -> float:
        """Seconds of a step, over so many."""
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - began) / steps


def _drawn(outputs: int, inputs: int) -> Tensor:
    drawn: Tensor = (torch.randn(outputs, inputs) / inputs**0.5).to(HALF)
    return drawn


class Process:
    """A forked process that does its turns when it is told to."""

    def __init__(self, make: Callable[[], Share], threads: int) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                torch.set_num_threads(threads)
                share = make()
                share.seconds(2)
                os.write(answers, b"\n")
                while steps := os.read(orders, 1):
                    os.write(answers, json.dumps(share.seconds(steps[0])).encode())
            finally:
                os._exit(0)
        os.close(orders)
        os.close(answers)

    def ready(self) -> None:
        if not os.read(self._answers, 1):
            raise click.ClickException("a process failed; its message is above")

    def begin(self, steps: int) -> None:
        os.write(self._orders, bytes([steps]))

    def seconds(self) -> float:
        return float(json.loads(os.read(self._answers, 100)))

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@click.command(help=__doc__)
@click.option("--ranks", default=2, show_default=True, help="Processes, and threads of the one.")
@click.option("--sequences", default=32, show_default=True, help="That decode in a step.")
@click.option("--steps", default=10, show_default=True, type=click.IntRange(1, 255), help="In a turn.")
@click.option("--turns", default=9, show_default=True, help="Turns of each kind.")
@click.option("--write", type=click.Path(exists=True, path_type=Path), help="A page to write the table into.")
def main(ranks: int, sequences: int, steps: int, turns: int, write: Path | None) -> None:
    kernels = native_kernels()  # compiled once, not by each rank
    meeting = Meeting.on_this_machine()

    def of_rank(rank: int) -> Callable[[], Share]:
        return lambda: Share(kernels, ranks, SharedMemory(meeting, rank, ranks), sequences)

    kinds = {
        f"one process, {ranks} threads": [Process(lambda: Share(kernels, 1, None, sequences), ranks)],
        f"{ranks} processes, one thread each": [Process(of_rank(rank), 1) for rank in range(ranks)],
    }
    for processes in kinds.values():
        for each in processes:
            each.ready()
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(turns):
        for kind, processes in kinds.items():
            for each in processes:
                each.begin(steps)
            taken[kind].append(max([each.seconds() for each in processes]))
    for processes in kinds.values():
        for each in processes:
            each.end()
    medians = {kind: statistics.median(each) for kind, each in taken.items()}
    alone = next(iter(medians.values()))
    rows = [(kind, f"{each * 1e3:.1f}", f"{alone / each:.2f}") for kind, each in medians.items()]
    table = markdown_table((f"{sequences} sequences", "a step, ms", "as fast"), rows)
    click.echo(table)
    if write:
        write_marked(write, "rank-layers", table)


if __name__ == "__main__":
    main()
