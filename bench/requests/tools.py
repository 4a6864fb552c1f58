"""Measures what tools cost a request over HTTP, beside the same prompt without tools.

\b
    ttft  /v1/responses of 200 KB with 40 tools, beside /v1/completions of the rendered prompt: first token
    w2    32 chats of 64 tokens out at once, streamed, with tools and without

Both take turns on one server, so that a machine's other load falls on both.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any

import click
import httpx

Body = dict[str, Any]
AT_ONCE, PROMPT, OUTPUT = 32, 400, 64
"""A description of tools takes some of the prompt."""
PARAMETERS: Body = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "where " * 400},
        "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
        "mode": {"enum": ["read", "write"]},
        "note": {"type": ["string", "null"]},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def tools(count: int, parameters: Body) -> list[Body]:
    return [{"type": "function", "name": f"tool_{n}", "parameters": parameters} for n in range(count)]


def nested(given: list[Body]) -> list[Body]:
    """As chat has them."""
    return [
        {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in given
    ]


async def first_token(http: httpx.AsyncClient, path: str, body: Body, mark: str) -> float:
    """Seconds until the first event that holds `mark`."""
    begun = time.perf_counter()
    async with http.stream("POST", path, json={**body, "stream": True}) as response:
        if response.status_code != 200:
            raise click.ClickException((await response.aread()).decode())
        async for line in response.aiter_lines():
            if mark in line:
                return time.perf_counter() - begun
    raise click.ClickException(f"no {mark} came from {path}")


async def ttft(http: httpx.AsyncClient, turns: int) -> None:
    given = tools(40, PARAMETERS)
    asked: Body = {"input": "word " * 19_000, "tools": given, "temperature": 0, "max_output_tokens": 4}
    size = len(json.dumps(asked))
    messages = [{"role": "user", "content": asked["input"]}]
    rendered = await http.post("/tokenize", json={"messages": messages, "tools": nested(given)})
    ids = rendered.json()["tokens"]
    text = (await http.post("/detokenize", json={"tokens": ids})).json()["prompt"]
    plain: Body = {"prompt": text, "temperature": 0, "max_tokens": 4, "add_special_tokens": False}
    with_tools, without = [], []
    cold = await first_token(http, "/v1/responses", asked, ".delta")
    await first_token(http, "/v1/completions", plain, '"text"')
    for _ in range(turns):
        with_tools.append(await first_token(http, "/v1/responses", asked, ".delta"))
        without.append(await first_token(http, "/v1/completions", plain, '"text"'))
    mine, theirs = (1e3 * statistics.median(times) for times in (with_tools, without))
    difference = 1e3 * statistics.median(a - b for a, b in zip(with_tools, without, strict=True))
    click.echo(
        f"{size:,} bytes, {len(ids):,} tokens: first {1e3 * cold:.0f} ms, later with tools {mine:.0f} ms, "
        f"without {theirs:.0f} ms, difference {difference:.0f} ms (medians of {turns})"
    )


async def w2(http: httpx.AsyncClient, turns: int) -> None:
    given = nested(tools(2, {"type": "object", "properties": {"path": {"type": "string"}}}))
    # Drawn: the likeliest token of a model of random weights is often no text, and nothing is streamed.
    common: Body = {"temperature": 1, "max_tokens": OUTPUT, "ignore_eos": True, "stream": True}

    async def length(text: str, more: Body) -> int:
        messages = [{"role": "user", "content": text}]
        return int((await http.post("/tokenize", json={"messages": messages, **more})).json()["count"])

    async def body(more: Body, number: int) -> Body:
        """A prompt of so many tokens, of which a word is one."""
        words = PROMPT - await length(f"{number}", more)
        text = f"{number}" + " word" * words
        return {"messages": [{"role": "user", "content": text}], "seed": number, **common, **more}

    async def turn(bodies: list[Body]) -> float:
        async def one(body: Body) -> None:
            async with http.stream("POST", "/v1/chat/completions", json=body) as response:
                async for _ in response.aiter_raw():
                    pass

        begun = time.perf_counter()
        await asyncio.gather(*map(one, bodies))
        return AT_ONCE * OUTPUT / (time.perf_counter() - begun)

    sides = [[await body(more, number) for number in range(AT_ONCE)] for more in ({}, {"tools": given})]
    rates: list[list[float]] = [[], []]
    for side in sides:
        await turn(side)
    for number in range(turns):
        for which in (0, 1) if number % 2 else (1, 0):
            rates[which].append(await turn(sides[which]))
    plain, with_tools = map(statistics.median, rates)
    ratio = statistics.median(b / a for a, b in zip(*rates, strict=True))
    click.echo(
        f"W2 without tools {plain:.0f} tokens/s, with tools {with_tools:.0f}; of pairs {100 * ratio:.1f}% "
        f"(medians of {turns})"
    )


@click.command()
@click.option("--url", required=True, help="A server of a model with 64k of context.")
@click.option("--turns", default=15, show_default=True)
@click.option("--only", type=click.Choice(["ttft", "w2"]))
def main(url: str, turns: int, only: str | None) -> None:
    """Prints both."""

    async def run() -> None:
        limits = httpx.Limits(max_connections=2 * AT_ONCE)
        async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as http:
            if only != "w2":
                await ttft(http, turns)
            if only != "ttft":
                await w2(http, turns)

    asyncio.run(run())


if __name__ == "__main__":
    main()
