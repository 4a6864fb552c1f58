"""Turnout's embeddings on a CPU beside vLLM, and sentence-transformers on PyTorch, ONNX Runtime, OpenVINO.

\b
    512 texts of 16 to 512 tokens, in one call: tokens a second, from texts to vectors
    one text of 16 tokens after another: milliseconds, the median

The models have the shapes of published ones, and random weights. Every engine gets the same folder and the
same texts, computes in the same dtype (OpenVINO left alone takes bfloat16 where the CPU has it), and gives
the same vectors, which is checked. A machine's speed drifts, so every engine takes a turn before any takes
a second one, and ratios are of turns that followed one another. Each engine is a process of its own; the
peers' environment and models are made when they are asked for the first time, under `--folder`. Nothing else
should be computing.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from peers.environments import OWN, Environment, environment, tail
from peers.options import publish
from peers.peers import THIS_CHECKOUT, VLLM, vllm_variables

from turnout.lab.results.markdown import markdown_table

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "examples" / "rag"))

SHAPES = {"bert-base": (12, 768, 12), "minilm-l6": (6, 384, 12)}
"""Layers, hidden size and heads."""
REST = 0.5
"""Seconds before a turn: threads wait actively for a while after their last work."""
SHORT = 16
"""Tokens of a single query."""
NEAR = {"float32": 0.999999, "bfloat16": 0.999}
"""Cosine, at least, of a text's vectors by two engines."""
SENTENCE = Environment("sentence-transformers", ["install torch==2.13.0 sentence-transformers==6.2.0"])
BACKENDS = Environment(
    "sentence-transformers-backends",
    [
        "install torch==2.13.0",
        "install sentence-transformers>=5,<6 optimum-onnx optimum-intel onnxruntime openvino "
        "transformers>=4.53,<4.56",
    ],
)
"""optimum goes with older ones."""
PEERS = {
    "sentence-transformers": ("torch", SENTENCE),
    "onnxruntime": ("onnx", BACKENDS),
    "openvino": ("openvino", BACKENDS),
    "vllm": ("vllm", VLLM),
}
"""By the backend of sentence-transformers that runs each, or vLLM itself, and where it does."""


class Engine:
    """A process that embeds what it is given."""

    def __init__(self, name: str, model: Path, dtype: str, threads: int, clock: str, folder: Path) -> None:
        self.name = name
        ours = name == "turnout"
        backend, where = PEERS.get(name, ("turnout", None))
        python = OWN if where is None else where.python(folder)
        variables = THIS_CHECKOUT if ours else {}
        if name == "vllm":
            variables = vllm_variables(threads, python) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        self._log = folder / f"embeddings-{name}.log"
        worker = HERE / "peers" / "embedding_worker.py"
        with self._log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(python), str(worker), backend, str(model), dtype, str(threads), clock],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(variables | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}),
                cwd=folder,
            )
        self._answer()

    def embed(self, texts: Sequence[str]) -> tuple[float, list[float]]:
        """Returns the seconds, and the first text's vector."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(texts)) + "\n")
        self._process.stdin.flush()
        seconds, vector = self._answer()
        return seconds, vector

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answer(self) -> tuple[float, list[float]]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise click.ClickException(f"{self.name} ended; {self._log} ends with:\n{tail(self._log)}")
        seconds, vector = json.loads(line)
        return seconds, vector


@dataclass
class Figures:
    """Of an engine, by turn."""

    rates: list[float] = field(default_factory=list)
    """Tokens a second."""
    single: list[float] = field(default_factory=list)
    """The median milliseconds of a single query."""


def write_model(folder: Path, shape: str) -> Path:
    """Writes a model of this shape, as sentence-transformers reads it, where it is not there yet."""
    from small_models import describe, words_of, write
    from transformers import BertConfig, BertModel

    target = folder / "models" / shape
    if (target / "modules.json").exists():
        return target
    layers, hidden, heads = SHAPES[shape]
    config = BertConfig(
        vocab_size=30_522,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
    )
    texts = (path.read_text(encoding="utf-8") for path in sorted((HERE.parent / "docs").rglob("*.md")))
    describe(write(target, BertModel(config, add_pooling_layer=False), words_of(texts)), hidden)
    return target


def made_texts(model: Path, count: int, seed: int) -> tuple[list[str], list[str], int]:
    """Returns texts of 16 to 512 tokens, single queries, and how many tokens the texts have."""
    from turnout.text.tokenizer import load_tokenizer

    backend = load_tokenizer(model).backend
    words = [word for word in sorted(backend.get_vocab()) if word.isalpha() and word.islower()]
    whole = [word for word in words if len(backend.encode(word, add_special_tokens=False).ids) == 1]
    rng = random.Random(seed)

    def text(tokens: int) -> str:
        return " ".join(rng.choices(whole, k=tokens - 2))

    lengths = [rng.randint(16, 512) for _ in range(count)]
    return [text(length) for length in lengths], [text(SHORT) for _ in range(64)], sum(lengths)


def measure(engines: Sequence[Engine], model: Path, dtype: str, count: int, repeats: int) -> list[Figures]:
    figures = [Figures() for _ in engines]
    warming, _, _ = made_texts(model, 16, -1)
    for engine in engines:
        engine.embed(warming)
    for repeat in range(repeats):
        texts, queries, tokens = made_texts(model, count, repeat)
        vectors = []
        for engine, its in zip(engines, figures, strict=True):
            time.sleep(REST)
            seconds, vector = engine.embed(texts)
            its.rates.append(tokens / seconds)
            vectors.append(vector)
            its.single.append(statistics.median(1000 * engine.embed([query])[0] for query in queries))
            click.echo(f"{engine.name}: {its.rates[-1]:,.0f} tokens/s, {its.single[-1]:.2f} ms", err=True)
        check(engines, vectors, NEAR[dtype])
    return figures


def check(engines: Sequence[Engine], vectors: Sequence[list[float]], near: float) -> None:
    for engine, vector in zip(engines, vectors, strict=True):
        cosine = sum(one * other for one, other in zip(vectors[0], vector, strict=True))
        if not cosine >= near:  # nor is NaN
            raise click.ClickException(f"{engine.name} gives another vector: its cosine is {cosine:.6f}")


def table(engines: Sequence[Engine], figures: Sequence[Figures]) -> str:
    rows = []
    for engine, its in zip(engines, figures, strict=True):
        rate, single = statistics.median(its.rates), statistics.median(its.single)
        ratios = sorted(ours / theirs for ours, theirs in zip(figures[0].rates, its.rates, strict=True))
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        rows.append((engine.name, f"{rate:,.0f}", "" if its is figures[0] else ratio, f"{single:.2f} ms"))
    return markdown_table(["", "tokens/s", "Turnout is so many times as fast", "single query"], rows)


@click.command(help=__doc__)
@click.option("--shape", type=click.Choice(list(SHAPES)), default="minilm-l6", show_default=True)
@click.option("--dtype", type=click.Choice(list(NEAR)), default="float32", show_default=True)
@click.option("--texts", default=512, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--cpu-time", is_flag=True, help="Seconds of CPU time, for a machine that does other work too.")
@click.option("--repeats", default=5, show_default=True)
@click.option("--peers", default=",".join(PEERS), show_default=True, help="With commas between.")
@click.option(
    "--folder",
    default=Path.home() / ".cache" / "turnout" / "peers",
    show_default=True,
    type=click.Path(path_type=Path),
    help="For environments, models, logs.",
)
@click.option("--write", type=click.Path(path_type=Path), help="Document to write the table into.")
def main(
    shape: str,
    dtype: str,
    texts: int,
    threads: int,
    cpu_time: bool,
    repeats: int,
    peers: str,
    folder: Path,
    write: Path | None,
) -> None:
    names = [name for name in peers.split(",") if name]
    for name in names:
        if name not in PEERS:
            raise click.BadParameter(f"there is no {name!r}; there are {', '.join(PEERS)}")
        if name == "onnxruntime" and dtype != "float32":
            raise click.BadParameter("onnxruntime computes in float32 alone; leave it out of --peers")
    folder.mkdir(parents=True, exist_ok=True)
    model = write_model(folder, shape)
    engines: list[Engine] = []
    try:
        for name in ("turnout", *names):
            engines.append(Engine(name, model, dtype, threads, "cpu" if cpu_time else "wall", folder))
        publish(table(engines, measure(engines, model, dtype, texts, repeats)), write, f"{shape}-{dtype}")
    finally:
        for engine in engines:
            engine.stop()


if __name__ == "__main__":
    main()
