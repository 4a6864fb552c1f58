"""A request that crashes the process is found and ended after three deaths, and no other request suffers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from tiny_server import serving

STREAMS = 64
TOKENS = 200
SEGFAULTS = """
import ctypes

from turnout.core.interfaces.logits_processor import LogitsProcessor
from turnout.core.registry.hookspecs import hookimpl


class Segfaults(LogitsProcessor):
    extra_args = ("segfault_after",)

    def wants(self, params):
        return "segfault_after" in params.extra_args

    def apply(self, logits, rows):
        for row in rows:
            if len(row.sequence.output) >= row.params.extra_args["segfault_after"]:
                ctypes.string_at(0)


@hookimpl
def register_logits_processors(register):
    register("segfaults", Segfaults)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("after", [0, 40], ids=lambda after: f"after {after} tokens")
def test_of_64_streams_only_the_killer_ends(replicas: int, after: int, tmp_path: Path) -> None:
    (tmp_path / "turnout_plugins.py").write_text(SEGFAULTS)
    flags = ("--replicas", str(replicas), "--plugins-folder", str(tmp_path), "--kv-memory", "64MiB")
    with serving(*flags, "--logits-processor", "segfaults", "--max-num-seqs", str(STREAMS + 1)) as server:
        asyncio.run(_kill(server.url, after))
        server.check()


async def _kill(url: str, after: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, connector=connector) as client:
        right = [await _answer(client, number) for number in range(8)]
        streams = [asyncio.create_task(_answer(client, number % 8)) for number in range(STREAMS)]
        await asyncio.sleep(0.3)
        killer = asyncio.create_task(_answer(client, 0, vllm_xargs={"segfault_after": after}))
        answers = await asyncio.gather(*streams)
        assert "died each time that it served this request alone" in await killer
        assert answers == [right[number % 8] for number in range(STREAMS)]
        async with client.get("/admin/replicas") as response:
            restarts = sum(each["restarts"] for each in (await response.json())["replicas"])
        assert restarts <= 3


async def _answer(client: aiohttp.ClientSession, number: int, **body: object) -> str:
    """The text, or the error's message."""
    asked = {"prompt": f"def f{number}(", "seed": number, "temperature": 1, "max_tokens": TOKENS}
    async with client.post("/v1/completions", json={**asked, "ignore_eos": True, **body}) as response:
        said = await response.json()
    return str(said["choices"][0]["text"] if response.status == 200 else said["error"]["message"])
