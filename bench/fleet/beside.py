"""What a token of chat costs beside embeddings, and what embeddings get: the trade, on a CPU.

\b
    two  a chat model and an embedder in one server: an engine each, by the shares of the cores that they have
    one  embeddings of the chat model itself, in its engine: by the tokens that a step may pool beside chat

Eight streams of 32 tokens in and 64 out, while clients embed texts of 16 to 256 tokens without a pause: four
with 16 in a request, or sixteen with one, of the chat model. A turn of every setting is taken before a second
of any; the table has medians of turns. The models have the shapes of Qwen2.5-0.5B and of all-MiniLM-L6-v2,
and random weights. Nothing else should be computing.

PYTHONPATH=bench:bench/.. python bench/fleet/beside.py two
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import click
from embeddings import write_model
from peers.environments import OWN
from peers.options import publish
from peers.server import Server, free_port

from turnout.lab.jobs.prompts import Prompts
from turnout.lab.load.generator import run_load
from turnout.lab.load.target import Target
from turnout.lab.results.markdown import markdown_table
from turnout.lab.results.summary import summarize
from turnout.lab.workloads.source import load_workload

ROOT = Path(__file__).parents[2]
CHAT = "burst:requests=8,prompt=32,output=64"
CLIENTS = {"embed": (4, 16), "chat": (16, 1)}
"""How many embed, and texts of a request, by the model that does."""
WARMING = 1.0
"""Seconds of embeddings before chat begins."""
ALONE = "chat alone"
TWO: dict[str, tuple[str, str, str] | None] = {
    "by default": None,
    "half of the cores each": ("0.5", "0.5", "10"),
    "chat all, embeddings half": ("1", "0.5", "0"),
    "the same, and give way": ("1", "0.5", "10"),
    "the same, and give way further": ("1", "0.5", "19"),
    "both all": ("1", "1", "0"),
}
"""The shares of the cores of chat and of embeddings, and how far those give way; None: nothing is given."""
ONE = ("1", "4", "16", "512")
"""Tokens that a step pools beside chat."""


@dataclass
class Setting:
    """A server, and its turns."""

    name: str
    server: Server
    target: Target
    embedder: str
    """Empty: nobody embeds."""
    tpot: list[float] = field(default_factory=list)
    """Milliseconds, the 99th percentile."""
    embedded: list[float] = field(default_factory=list)
    """Tokens a second."""
    embedded_alone: list[float] = field(default_factory=list)

    def turn(self, seed: int) -> None:
        if not self.embedder:
            self.tpot.append(chat(self.target, seed))
            return
        with Embedding(self.target.url, self.embedder, seed) as embedding:
            time.sleep(WARMING)
            self.embedded_alone.append(embedding.rate())
            self.tpot.append(chat(self.target, seed))
            self.embedded.append(embedding.rate())


class Embedding:
    """Clients in a process of their own, which embed until they are told to stop."""

    def __init__(self, url: str, model: str, seed: int) -> None:
        command = [sys.executable, __file__, "two", "--embed", url, model, str(seed)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Embedding:
        self.rate()  # when it is up
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def rate(self) -> float:
        """Tokens a second since the last call."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException("the clients that embed have ended")
        return float(line)


async def embed(url: str, model: str, seed: int) -> None:
    """What the clients' process does. seed: of a turn, whose texts no earlier turn has put into the cache."""
    rng, tokens, loop = random.Random(seed), 0, asyncio.get_running_loop()
    clients, count = CLIENTS[model]

    async def client(http: aiohttp.ClientSession) -> None:
        nonlocal tokens
        while True:
            texts = [[rng.randrange(1000, 29_000) for _ in range(rng.randint(16, 256))] for _ in range(count)]
            body = {"model": model, "input": texts, "encoding_format": "base64"}
            async with http.post(f"{url}/v1/embeddings", json=body) as answer:
                answer.raise_for_status()
                await answer.read()
            tokens += sum(map(len, texts))

    async with aiohttp.ClientSession() as http:
        tasks = [asyncio.create_task(client(http)) for _ in range(clients)]
        began = time.monotonic()
        while await loop.run_in_executor(None, sys.stdin.readline):
            for each in tasks:
                if each.done():
                    await each  # raises
            print(tokens / (time.monotonic() - began), flush=True)
            tokens, began = 0, time.monotonic()


def chat(target: Target, seed: int) -> float:
    load = load_workload(CHAT, seed)
    run = run_load(load, target, Prompts(load.jobs, seed))
    summary = summarize(run.records, run.duration)
    if summary.failed:
        raise click.ClickException(f"requests failed: {run.records[0].error}")
    return summary.latencies["tpot"].percentiles[99.0]


def made(folder: Path) -> tuple[Path, Path]:
    """The folders of both models, which are written where they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    decoder = folder / "models" / "qwen2.5-0.5b"
    if not decoder.exists():
        script = ROOT / "scripts" / "make_model.py"
        subprocess.run(
            [sys.executable, str(script), "--shape", "qwen2.5-0.5b", "--out", str(decoder)], check=True
        )
    return decoder, write_model(folder, "minilm-l6")


def started(running: ExitStack, logs: Path, name: str, arguments: Sequence[str], embedder: str) -> Setting:
    port = free_port()
    command = [str(OWN), "-P", "-m", "turnout", "serve", *arguments, "--port", str(port)]
    log = logs / f"{name}.log"
    server = Server(name, command, {"PYTHONPATH": str(ROOT.parent), "NO_PROXY": "*"}, log, port)
    running.callback(server.stop)
    return Setting(name, server, Target.at(f"127.0.0.1:{port}", model="chat"), embedder)


def settings(running: ExitStack, way: str, logs: Path, decoder: Path, encoder: Path) -> list[Setting]:
    common = ["--max-model-len", "512"]
    found = [started(running, logs, ALONE, [f"chat={decoder}", *common], "")]
    if way == "one":
        for tokens in ONE:
            arguments = [f"chat={decoder}", *common, "--max-num-pooled-tokens", tokens]
            found.append(started(running, logs, f"{tokens} tokens", arguments, "chat"))
        return found
    for name, given in TWO.items():
        own, theirs = "", ""
        if given is not None:
            own, theirs = f", cpu-share: {given[0]}", f", cpu-share: {given[1]}, nice: {given[2]}"
        file = logs / f"{name}.yaml"
        file.write_text(
            f"models:\n  chat: {{model: {decoder}{own}}}\n  embed: {{model: {encoder}{theirs}}}\n"
        )
        found.append(started(running, logs, name, ["--config", str(file), *common], "embed"))
    return found


def table(found: Sequence[Setting]) -> str:
    alone = found[0].tpot
    rows = []
    for each in found:
        ratios = sorted(one / other for one, other in zip(each.tpot, alone, strict=True))
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        tpot = f"{statistics.median(each.tpot):.1f} ms"
        beside, by_itself = (
            f"{statistics.median(rates):,.0f}" if rates else ""
            for rates in (each.embedded, each.embedded_alone)
        )
        rows.append((each.name, tpot, "" if each is found[0] else ratio, beside, by_itself))
    heads = ["", "p99 TPOT", "of alone", "embedded tokens/s", "without chat"]
    return markdown_table(heads, rows, "lrrrr")


@click.command(help=__doc__)
@click.argument("way", type=click.Choice(["two", "one"]))
@click.option("--repeats", default=3, show_default=True, help="Turns of each setting.")
@click.option(
    "--folder",
    default=Path.home() / ".cache" / "turnout" / "peers",
    show_default=True,
    type=click.Path(path_type=Path),
    help="For the models.",
)
@click.option("--write", type=click.Path(path_type=Path), help="Document to write the table into.")
@click.option("--embed", "embedded", type=(str, str, int), hidden=True)
def main(
    way: str, repeats: int, folder: Path, write: Path | None, embedded: tuple[str, str, int] | None
) -> None:
    if embedded is not None:
        asyncio.run(embed(*embedded))
        return
    os.environ.pop("OMP_NUM_THREADS", None)  # it would decide how many threads an engine has
    decoder, encoder = made(folder)
    with tempfile.TemporaryDirectory() as logs, ExitStack() as running:
        found = settings(running, way, Path(logs), decoder, encoder)
        for turn in range(repeats + 1):
            for each in found:
                each.turn(turn)
        for each in found:  # the first turn warms
            for figures in (each.tpot, each.embedded, each.embedded_alone):
                del figures[:1]
        publish(table(found), write, f"beside-{way}")


if __name__ == "__main__":
    main()
