"""``turnout bench serve``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click

from turnout.cli.bench.output import output_options, progress_bar, run_facts, write_csv, write_json
from turnout.cli.bench.server_profile import profiled
from turnout.cli.chat.client import ChatClient
from turnout.cli.options.workload import find_workload
from turnout.cli.terminal.errors import INTERRUPTED
from turnout.cli.terminal.summary_table import summary_lines
from turnout.core.errors import ConfigError, EngineError
from turnout.lab.jobs.job import Workload
from turnout.lab.jobs.prompts import DEFAULT_VOCABULARY, Prompts
from turnout.lab.load.generator import LoadRun, run_load
from turnout.lab.load.target import PATHS, TEXT_ONLY, Endpoint, Target
from turnout.lab.results.goodput import Goodput
from turnout.lab.results.record import Record
from turnout.lab.results.summary import PERCENTILES, Summary, summarize
from turnout.lab.traces.tokens import CountTokens, estimated_tokens

__all__ = ["command"]

BACKENDS = {
    "completions": "openai",
    "chat": "openai-chat",
    "embeddings": "openai-embeddings",
    "rerank": "vllm-rerank",
}
"""vLLM's names."""
WARM_UP_SEED = 2**62
"""Added to the seed, so that the requests of the warm-up have other prompts than the measured ones."""


@dataclass(frozen=True)
class LoadOptions:
    """The options, by their names."""

    url: str
    model: str | None
    workload: str
    seed: int
    endpoint: Endpoint
    prompts: Literal["tokens", "text"] | None
    tokenizer: str | None
    vocabulary: int
    ignore_eos: bool
    extra_body: str | None
    texts: int
    api_key: str | None
    timeout: float | None
    profile: bool = False
    admin_key: str | None = None

    def profiled(self, url: str) -> AbstractContextManager[None]:
        """Has the server profile its engines in the block, if that is asked for."""
        return profiled(url, self.admin_key or self.api_key or "") if self.profile else nullcontext()

    def load(self) -> Workload:
        count = _counter(self.tokenizer) if self.tokenizer else estimated_tokens
        return find_workload(self.workload, self.seed, count)

    def target(self) -> Target:
        """Returns the server to load. Without ``--model`` this asks the server which model it serves."""
        target = Target.at(
            self.url,
            model=self.model or "",
            endpoint=self.endpoint,
            prompts=self.prompts or ("text" if self.endpoint in TEXT_ONLY else "tokens"),
            ignore_eos=self.ignore_eos,
            body=_json_object(self.extra_body),
            api_key=self.api_key or "",
            texts=self.texts,
        )
        return target if self.model else replace(target, model=_served(target))


@click.command(name="serve")
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="URL of the server.")
@click.option("--model", help="Model to request; default: the first that the server lists.")
@click.option(
    "--workload",
    default="poisson:rate=1,requests=100",
    show_default=True,
    help="Trace, or generator with its options; see `turnout bench workloads`.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of arrivals, lengths and prompts.")
@click.option(
    "--endpoint",
    type=click.Choice(list(PATHS)),
    default="completions",
    show_default=True,
    help="Endpoint to send requests to.",
)
@click.option(
    "--prompts",
    type=click.Choice(["tokens", "text"]),
    help="Send prompts as token ids, or as text, a common word for each token, which the server "
    "counts; default: tokens, but text for chat and rerank.",
)
@click.option(
    "--texts",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Texts of a request for embeddings, or documents of one to rank, each as long as a prompt.",
)
@click.option(
    "--tokenizer", metavar="MODEL", help="Model whose tokenizer counts the tokens of a trace with texts."
)
@click.option(
    "--vocabulary",
    default=DEFAULT_VOCABULARY,
    show_default=True,
    type=click.IntRange(min=100),
    help="Number of token ids to draw prompts from; special tokens are avoided.",
)
@click.option(
    "--ignore-eos/--no-ignore-eos",
    default=True,
    help="Generate outputs as long as the workload says.  [default: --ignore-eos]",
)
@click.option("--extra-body", metavar="JSON", help="Fields to add to each request; they override others.")
@click.option("--api-key", envvar="OPENAI_API_KEY", show_envvar=True, help="Bearer token of the server.")
@click.option(
    "--goodput",
    metavar="METRIC:MS,…",
    help="Limits by which to count good requests, such as ttft:200,tpot:50.",
)
@click.option(
    "--percentiles",
    default=",".join(f"{rank:g}" for rank in PERCENTILES),
    show_default=True,
    help="Percentiles to report of each latency.",
)
@click.option(
    "--warm-up",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Requests to send before measuring.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Most seconds that a request may take."
)
@click.option(
    "--profile",
    is_flag=True,
    help="Profile the server's engines meanwhile; the server needs --profile-dir.",
)
@click.option(
    "--admin-key",
    envvar="TURNOUT_ADMIN_KEY",
    help="Admin key of the server, for --profile; default: --api-key.",
)
@click.option("--details", is_flag=True, help="Include figures of each request in --json.")
@output_options("a line for each request")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    goodput: str | None,
    percentiles: str,
    warm_up: int,
    details: bool,
    json_file: Path | None,
    csv_file: Path | None,
    **options: Any,
) -> None:
    """Send a workload to a server with OpenAI's API, Turnout's or another, and measure what its clients see.

    The exit code is 1 if no request was answered. Ctrl-C prints what has been measured so far and exits with
    130.
    """
    limits = Goodput.parse(goodput) if goodput else None
    ranks = _ranks(percentiles)
    settings = LoadOptions(**options)
    workload = settings.load()
    target = settings.target()
    _warm_up(settings, workload, target, warm_up)
    with (
        settings.profiled(target.url),
        progress_bar(len(workload.jobs)) as done,
    ):
        prompts = Prompts(workload.jobs, settings.seed, settings.vocabulary)
        load = run_load(workload, target, prompts, timeout=settings.timeout, progress=done)
    if load.interrupted:
        _say_partial(load, len(workload.jobs))
    summary = summarize(load.records, load.duration, limits, ranks)
    click.echo("\n".join(summary_lines(summary)))
    for warning in load.warnings:
        click.echo(f"Warning: {warning}", err=True)
    write_json(json_file, _figures(settings, workload, target) | _measured(load, summary, details))
    write_csv(csv_file, [_row(record) for record in load.records])
    if load.interrupted:
        ctx.exit(INTERRUPTED)
    if not summary.completed:
        ctx.exit(1)


# ------------------------------------------------------------------ before


def _warm_up(settings: LoadOptions, workload: Workload, target: Target, requests: int) -> None:
    """Sends a few requests first. Raises EngineError if one fails, before thousands do."""
    jobs = [replace(job, at=0.0, session="") for job in workload.jobs[:requests]]
    prompts = Prompts(jobs, settings.seed + WARM_UP_SEED, settings.vocabulary)
    load = run_load(Workload("warm-up", jobs, concurrency=1), target, prompts, timeout=settings.timeout)
    if load.interrupted:
        raise KeyboardInterrupt
    for record in load.records:
        if record.error:
            raise EngineError(f"{target.url} did not answer a warm-up request: {record.error}")


def _served(target: Target) -> str:
    models = ChatClient(target.url, target.api_key).models()
    if not models:
        raise ConfigError(f"{target.url} lists no model; name one with --model")
    return models[0]


def _counter(model: str) -> CountTokens:
    from turnout.models.hub.resolve import resolve_model
    from turnout.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(resolve_model(model))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _json_object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise ConfigError(f"--extra-body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError('--extra-body must be an object, such as {"temperature": 0.8}')
    return value


def _ranks(text: str) -> list[float]:
    try:
        ranks = [float(rank) for rank in text.split(",")]
    except ValueError:
        ranks = [-1.0]
    if not all(0 <= rank <= 100 for rank in ranks):
        raise ConfigError(f"--percentiles {text!r}: expected numbers from 0 to 100, with commas between")
    return ranks


# ------------------------------------------------------------------ after


def _say_partial(load: LoadRun, jobs: int) -> None:
    click.echo(
        f"\ninterrupted: partial figures, of the {len(load.records):,} of {jobs:,} requests that had ended:",
        err=True,
    )


def _figures(settings: LoadOptions, workload: Workload, target: Target) -> dict[str, object]:
    """Returns what was measured, under vLLM's names where there are some."""
    return {
        **run_facts(),
        "backend": BACKENDS[target.endpoint],
        "base_url": target.url,
        "model_id": target.model,
        "workload": workload.name,
        "seed": settings.seed,
        "num_prompts": len(workload.jobs),
        "max_concurrency": workload.concurrency,
    }


def _measured(load: LoadRun, summary: Summary, details: bool) -> dict[str, object]:
    return {
        **summary.as_json(),
        "lag_p99_ms": 1000 * load.lag,
        "warnings": load.warnings,
        "interrupted": load.interrupted,
        **(_details(load.records) if details else {}),
    }


def _details(records: Sequence[Record]) -> dict[str, object]:
    """Returns lists over the requests, as ``vllm bench serve --save-detailed`` has them; in seconds."""
    return {
        "input_lens": [record.prompt_tokens for record in records],
        "output_lens": [record.output_tokens for record in records],
        "start_times": [record.sent for record in records],
        "ttfts": [record.ttft if record.token_times else 0.0 for record in records],
        "itls": [record.itl for record in records],
        "errors": [record.error for record in records],
    }


def _row(record: Record) -> dict[str, object]:
    came = bool(record.token_times)
    return {
        "request": record.index,
        "client": record.job.client,
        "session": record.job.session,
        "priority": record.job.priority,
        "due_s": round(record.due, 6),
        "sent_s": round(record.sent, 6),
        "ttft_ms": round(1000 * record.ttft, 3) if came else "",
        "tpot_ms": round(1000 * record.tpot, 3) if came else "",
        "e2el_ms": round(1000 * record.e2el, 3),
        "input_tokens": record.prompt_tokens,
        "output_tokens": record.output_tokens,
        "output_digest": record.digest,
        "error": record.error,
    }
