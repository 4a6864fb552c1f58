"""A real Prometheus takes the rules and the configuration, scrapes real servers, and answers each panel."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from promql import FOLDER, rules
from running_server import eventually
from tiny_server import TinyServer, serving

from turnout.scripts.boards.board import Panel
from turnout.scripts.boards.boards import boards

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
VARIABLES = {"$__rate_interval": "20s", "$instance": ".*", "$model_name": ".*"}
EMPTY = {"Embeddings, scores and classes", "Groups of layers"}
"""Rows of which these servers have nothing to tell: the model generates, and its layers see all."""


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} is installed; apt-get install prometheus")
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", FOLDER / "alerts.yml"],
        ["check", "config", FOLDER / "prometheus.yml"],
        ["test", "rules", HERE / "alerts_test.yml"],
    ],
    ids=["rules", "config", "alerts"],
)
def test_promtool_takes_them(arguments: list[str | Path]) -> None:
    ran = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **params: str) -> dict[str, object]:
        response = httpx.get(self.url + path, params=params, timeout=20)
        assert response.status_code == 200, f"{params}: {response.text}"
        data: dict[str, object] = response.json()["data"]
        return data

    def ask(self, expr: str) -> list[object]:
        result = self.get("/api/v1/query", query=expr)["result"]
        assert isinstance(result, list)
        return result


@contextmanager
def prometheus(folder: Path, targets: dict[str, str]) -> Iterator[Prometheus]:
    """Scrapes the servers at these addresses every second, with a key."""
    key = folder / "key"
    key.write_text("admin")
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(FOLDER / "alerts.yml")]
    (job,) = config["scrape_configs"]
    job["authorization"] = {"credentials_file": str(key)}
    job["static_configs"] = [
        {"targets": [url.removeprefix("http://")], "labels": {"instance": name}}
        for name, url in targets.items()
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:19733",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        one = Prometheus("http://127.0.0.1:19733")
        eventually(lambda: "Server is ready" in (folder / "log").read_text(), 30)
        yield one
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def load(servers: list[TinyServer]) -> Iterator[None]:
    over = threading.Event()

    def ask(server: TinyServer) -> None:
        number = 0
        while not over.is_set():
            number += 1
            body = {"prompt": "def add(a, b):" * (number % 5 + 1), "max_tokens": 16, "user": f"u{number % 7}"}
            assert server.post("/v1/completions", body).status_code == 200

    threads = [threading.Thread(target=ask, args=(server,)) for server in servers for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


def test_prometheus_answers_every_panel_under_load(tmp_path: Path) -> None:
    tool("prometheus")
    keys = tmp_path / "keys.yaml"
    keys.write_text("- {name: search, key: secret}\n")
    memory = ["--kv-memory", "16MiB"]
    trial = ["--ab", "other:scheduler=sjf", "--admission", "queue-time", "--admin-key", "admin", *memory]
    fleet = [
        "--replicas",
        "2",
        "--spec-ngram",
        "--metrics-names",
        "both",
        "--api-key-file",
        str(keys),
        "--admin-key",
        "admin",
        *memory,
    ]
    with serving(*trial) as arms, serving(*fleet, key="secret") as replicas:
        targets = {"arms": arms.url, "fleet": replicas.url}
        with prometheus(tmp_path, targets) as asked, load([arms, replicas]):
            eventually(lambda: len(asked.ask("turnout:num_requests_running")) == 4, 60)
            time.sleep(15)  # for rates
            assert len(asked.ask("up == 1")) == 2
            for board in boards():
                for row in board.rows:
                    for panel in row.panels:
                        _check(asked, board.title, row.title, panel)
            for expr in vllm_queries():
                assert asked.ask(expr), f"vLLM's: no data for {expr}"
            for variable in ("instance", "model_name"):
                assert asked.get(f"/api/v1/label/{variable}/values")
            known = asked.get("/api/v1/rules")["groups"]
            told = json.dumps(known)
            assert all(f'"{rule["alert"]}"' in told for rule in rules())
            assert '"health": "ok"' in told and '"health": "err"' not in told
            assert not (firing := asked.ask('ALERTS{alertstate="firing"}')), firing


def vllm_queries() -> Iterator[str]:
    """What vLLM's published boards do with its metrics."""
    chosen = '{model_name=~"turnout-tiny", engine=~".*"}'
    server = f"{chosen}[20s]"
    for name in (
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
    ):
        yield f"histogram_quantile(0.9, sum by (le) (rate(vllm:{name}_bucket{server})))"
        yield f"rate(vllm:{name}_sum{server}) / rate(vllm:{name}_count{server})"
    for name in (
        "queue_time_seconds",
        "prefill_time_seconds",
        "decode_time_seconds",
        "max_num_generation_tokens",
    ):
        yield f"rate(vllm:request_{name}_sum{server})"
    yield f"sum by (finished_reason) (increase(vllm:request_success_total{server}))"
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        yield f"max by (instance, engine) (vllm:{name}{chosen})"
    yield 'sum(vllm:num_requests_waiting_by_reason{reason="capacity"})'
    for part, whole in (
        ("prefix_cache_hits", "prefix_cache_queries"),
        ("prompt_tokens_cached", "prompt_tokens"),
        ("spec_decode_num_draft_tokens", "spec_decode_num_drafts"),
        ("spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens"),
        ("num_preemptions", "generation_tokens"),
    ):
        yield f"sum(rate(vllm:{part}_total{server})) / sum(rate(vllm:{whole}_total{server}))"
    yield "vllm:cache_config_info"


def _check(asked: Prometheus, board: str, row: str, panel: Panel) -> None:
    for query in panel.queries:
        expr = query.expr
        for name, value in VARIABLES.items():
            expr = expr.replace(name, value)
        found = asked.ask(expr)
        assert found or row in EMPTY, f"{board}, {panel.title}: no data for {expr}"
