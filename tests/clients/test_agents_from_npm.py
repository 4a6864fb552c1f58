"""Claude Code and Codex create a file, over Messages and Responses, without a network, their prompts cached.

They need npm and its registry the first time.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from assistant import NAME, AssistantServer
from environments import npm_folder
from refusing_proxy import RefusingProxy, refusing
from script import call, rule, thought, turns_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
SAID = "hello.txt says hello."
CODEX_HOSTS = {"ab.chatgpt.com", "api.github.com", "chatgpt.com", "github.com"}


@pytest.fixture
def proxy() -> Iterator[RefusingProxy]:
    with refusing() as proxy:
        yield proxy


def ran(program: str, *arguments: str, folder: Path, **variables: str) -> str:
    """What an agent says that runs in a folder, with a home of its own."""
    (folder / "home").mkdir(parents=True, exist_ok=True)
    (folder / "work").mkdir(exist_ok=True)
    done = subprocess.run(
        [npm_folder(HERE / "npm" / "package.json") / "node_modules" / ".bin" / program, *arguments],
        cwd=folder / "work",
        env={"PATH": os.environ["PATH"], "HOME": str(folder / "home"), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Cache:
    """Prompt tokens that requests found in the prefix cache, and all of them, since it was made."""

    def __init__(self, server: AssistantServer) -> None:
        self._server = server
        self._begun = self._totals()
        server.forget_prompts()

    def hits_and_queries(self) -> tuple[float, float]:
        hits, queries = self._totals()
        return hits - self._begun[0], queries - self._begun[1]

    def _totals(self) -> tuple[float, float]:
        text = httpx.get(f"{self._server.url}/metrics").text
        hits, queries = (
            re.search(rf"^turnout:prefix_cache_{name}_total\S* (\S+)", text, re.M)
            for name in ("hits", "queries")
        )
        assert hits is not None and queries is not None
        return float(hits[1]), float(queries[1])


def check_session(server: AssistantServer, cache: Cache, turns: int, known: str) -> float:
    """Each prompt of a conversation begins with the one before it, which is cached; returns the hit rate."""
    prompts = [prompt for prompt in server.prompts() if known in prompt]
    assert len(prompts) == turns
    for earlier, later in pairwise(prompts):
        assert later.startswith(earlier)
    hits, queries = cache.hits_and_queries()
    assert hits > 0.97 * queries * (turns - 1) / turns
    return hits / queries


def test_claude_code(server: AssistantServer, proxy: RefusingProxy, tmp_path: Path) -> None:
    file = tmp_path / "work" / "hello.txt"
    title = rule('{"title": "A file that says hello"}', "Generate a concise, sentence-case title")
    turns = turns_of(
        thought("The tool for files will do.")
        + "I create it.\n"
        + call("Write", file_path=str(file), content="hello\n"),
        thought("Let me check.")
        + call("Read", file_path=str(file))
        + call("Bash", command="wc -c hello.txt"),
        thought("It is there.") + SAID,
    )
    server.script.play(title, *turns)
    rates = []
    for asked in ("Create a file hello.txt that says hello.", "Please write hello into hello.txt"):
        cache = Cache(server)
        said = ran(
            *("claude", "-p", asked, "--allowedTools", "Write Read Bash"),
            folder=tmp_path,
            ANTHROPIC_BASE_URL=server.url,
            ANTHROPIC_AUTH_TOKEN="none",
            ANTHROPIC_MODEL=NAME,
            **proxy.environment,
        )
        assert said.strip() == SAID and file.read_text() == "hello\n"
        file.unlink()
        rates.append(check_session(server, cache, 3, "interactive agent"))
    assert rates[1] > 0.95, "sessions share what the agent is told and its tools"
    assert proxy.hosts <= {"api.anthropic.com", "http-intake.logs.us5.datadoghq.com"}


def test_codex(server: AssistantServer, proxy: RefusingProxy, tmp_path: Path) -> None:
    server.script.say(
        thought("A shell will do.") + "I create it.\n" + call("exec_command", cmd="echo hello > hello.txt"),
        thought("Let me check.") + call("exec_command", cmd="cat hello.txt") + call("exec_command", cmd="ls"),
        thought("It is there.") + SAID,
    )
    cache = Cache(server)
    said = codex(server, proxy, tmp_path, "Create a file hello.txt that says hello.")
    assert said.strip() == SAID and (tmp_path / "work" / "hello.txt").read_text() == "hello\n"
    check_session(server, cache, 3, "Codex CLI")
    assert proxy.hosts <= CODEX_HOSTS


def test_codex_calls_a_tool_of_an_mcp_server(
    server: AssistantServer, proxy: RefusingProxy, tmp_path: Path
) -> None:
    """Codex offers such tools as a namespace; the model calls them by one name."""
    server.script.say(
        thought("The forecast will tell.") + call("mcp__weather__forecast", city="Bern"),
        "It is warm in Bern.",
    )
    command = json.dumps([str(HERE / "mcp_server.py")])
    weather = f"mcp_servers.weather={{command={json.dumps(sys.executable)}, args={command}}}"
    cache = Cache(server)
    said = codex(server, proxy, tmp_path, "How warm is it in Bern?", "-c", weather)
    assert said.strip() == "It is warm in Bern."
    check_session(server, cache, 2, "Codex CLI")
    assert any("18 degrees in Bern" in prompt for prompt in server.prompts())


def codex(server: AssistantServer, proxy: RefusingProxy, folder: Path, asked: str, *options: str) -> str:
    provider = f'{{name="Turnout", base_url="{server.url}/v1", wire_api="responses"}}'
    return ran(
        *("codex", "exec", "--skip-git-repo-check", "-s", "danger-full-access", "-m", NAME),
        *("-c", "model_provider=turnout", "-c", f"model_providers.turnout={provider}", *options),
        asked,
        folder=folder,
        **proxy.environment,
    )
