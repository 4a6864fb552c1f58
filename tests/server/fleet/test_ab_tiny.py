"""A live test of the embedded model: what clients get is what a server of one arm would have given them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from running_server import Other, RunningServer, eventually, running
from test_ab import AB, ask, sessions_of, states

from turnout.config import EngineConfig, ServerConfig
from turnout.models.hub.resolve import resolve_model
from turnout.server.engine.client import FACTORY
from turnout.server.fleet.arm_header import ARM_HEADER
from turnout.text.tokenizer import load_tokenizer

PROMPTS = ["def add(a, b):\n", "import os\n", "class Stack:\n", "for i in range(10):\n", "try:\n", "x = ["]


@pytest.fixture(scope="module")
def tiny() -> Iterator[RunningServer]:
    config = EngineConfig(device="cpu", dtype="float32", kv_memory=32 * 2**20, max_num_seqs=4)
    other = Other(engine={"scheduler": "ljf", "kv": "contiguous"})
    tokenizer = load_tokenizer(resolve_model(config.model))
    with running(tokenizer, config, ServerConfig(), FACTORY, other) as server:
        yield server


def text(server: RunningServer, session: str, number: int) -> str:
    """Half of them greedy, half of them drawn."""
    body: dict[str, object] = {"prompt": PROMPTS[number % len(PROMPTS)], "max_tokens": 24 + number}
    sampling = {"temperature": 0} if number % 2 else {"temperature": 1, "seed": number}
    whole = ask(server, session, **body, **sampling, ignore_eos=True).json()
    return str(whole["choices"][0]["text"])


@pytest.mark.slow
def test_a_promotion_under_load_changes_no_text(tiny: RunningServer) -> None:
    """Both arms say the same, alone, in a batch and while one of them ends."""
    ours, theirs = sessions_of("base", 12), sessions_of("long", 12)
    alone = [text(tiny, session, number) for number, session in enumerate(theirs)]
    with ThreadPoolExecutor(24) as pool:
        from_base = [pool.submit(text, tiny, session, number) for number, session in enumerate(ours)]
        from_long = [pool.submit(text, tiny, session, number) for number, session in enumerate(theirs)]
        eventually(lambda: len(tiny.client.streams) > 6)
        assert tiny.post(AB, action="promote", arm="long").status_code == 200
        assert states(tiny)["base"] == "draining"
        assert [answer.result() for answer in from_base] == alone
        assert [answer.result() for answer in from_long] == alone
    eventually(lambda: states(tiny) == {"base": "stopped", "long": "serving"})
    again = ask(tiny, ours[0], prompt="import os\n", max_tokens=1)
    assert again.headers[ARM_HEADER] == "long" and again.json()["model"] == "turnout-tiny"
