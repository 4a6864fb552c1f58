"""``turnout top`` of a real server."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from asking import COMPLETIONS
from click.testing import CliRunner
from running_server import Other, Start, eventually

from turnout.cli.main import cli


@pytest.mark.slow
def test_top_shows_the_requests_of_both_arms(start: Start) -> None:
    server = start({"max_num_seqs": 1}, other=Other("sjf", 0.5, {"scheduler": "sjf"}), admin_key=("admin",))
    with ThreadPoolExecutor(8) as pool:
        body = {"prompt": "ab", "max_tokens": 80, "user": "slow"}
        asked = [pool.submit(server.post, COMPLETIONS, **body) for _ in range(8)]
        eventually(lambda: server.work() >= 1)
        result = CliRunner().invoke(cli, ["top", "--url", server.url, "--json", "--api-key", "admin"])
        assert result.exit_code == 0, result.output
        told = json.loads(result.output)
        assert all(each.result().status_code == 200 for each in asked)
    engines = {each["name"].split("/")[1]: each for each in told["engines"]}
    assert {name: each["scheduler"] for name, each in engines.items()} == {"base": "fcfs", "sjf": "sjf"}
    assert sum(each["running"] + each["waiting"] for each in engines.values()) == 8
    states = {row["state"] for row in told["requests"]}
    assert len(told["requests"]) == 8 and states <= {"decode", "prefill", "waiting"} and "decode" in states
    waits = [row for row in told["requests"] if row["state"] == "waiting"]
    assert all(row["client"] == "slow" and row["prompt_tokens"] for row in told["requests"])
    assert {row["engine"].split("/")[1] for row in told["requests"]} <= {"base", "sjf"} and waits
    assert any(row["why"] for row in told["requests"])
    assert max(each["output_tokens_per_second"] or 0 for each in engines.values()) > 0
