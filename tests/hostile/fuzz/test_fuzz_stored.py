"""Whatever a response was asked with, what is stored of it is shown, listed, gone on from and deleted."""

from __future__ import annotations

import json
from typing import Any

import httpx
from endpoints import assert_answered, examples
from fuzzing import Fuzz
from hypothesis import strategies as st
from tiny_server import TinyServer
from values import encoded, mutated

RESPONSES, BATCHES, FILES = "/v1/responses", "/v1/batches", "/v1/files"
JSON = {"Content-Type": "application/json"}
LINE = {"custom_id": "a", "method": "POST", "url": RESPONSES, "body": {"input": "a", "max_output_tokens": 1}}


def test_what_is_stored_can_be_used(fuzz: Fuzz, fuzzed: TinyServer) -> None:
    stored = 0
    with httpx.Client(base_url=fuzzed.url, timeout=60) as client:

        def check(body: Any) -> None:
            nonlocal stored
            answer = client.post(RESPONSES, content=encoded(body), headers=JSON)
            assert_answered(RESPONSES, answer)
            if answer.status_code != 200:
                return
            path = f"{RESPONSES}/{id_of(answer)}"
            shown = client.get(path)
            if shown.status_code == 404:
                return  # it was not to be stored
            stored += 1
            assert shown.status_code == 200 and shown.json()["store"] is True
            listed = client.get(f"{path}/input_items", params={"limit": 100, "order": "asc"})
            assert listed.status_code == 200 and all(item["id"] for item in listed.json()["data"])
            later = {"input": "so?", "previous_response_id": shown.json()["id"], "max_output_tokens": 1}
            goes_on = client.post(RESPONSES, json=later)
            assert goes_on.status_code in (200, 400), goes_on.text
            assert client.post(f"{path}/cancel").status_code in (200, 400)
            assert client.delete(path).json()["deleted"] is True

        fuzz(st.one_of(examples("responses"), examples("responses-tools")), check, 8)
    assert stored
    fuzzed.check()


def id_of(answer: httpx.Response) -> str:
    if answer.headers["Content-Type"].startswith("application/json"):
        return str(answer.json()["id"])
    first = next(line for line in answer.text.splitlines() if line.startswith("data: "))
    return str(json.loads(first[6:])["response"]["id"])


def test_every_line_is_answered_or_refused(fuzz: Fuzz, fuzzed: TinyServer) -> None:
    with httpx.Client(base_url=fuzzed.url, timeout=60) as client:

        def check(lines: list[Any]) -> None:
            form = {"file": ("in.jsonl", b"\n".join(map(encoded, lines)))}
            file = client.post(FILES, files=form, data={"purpose": "batch"}).json()["id"]
            asked = {"input_file_id": file, "endpoint": RESPONSES, "completion_window": "24h"}
            id = client.post(BATCHES, json=asked).json()["id"]
            while (batch := client.get(f"{BATCHES}/{id}").json())["status"] not in ("completed", "failed"):
                pass
            counts = batch["request_counts"]
            if batch["status"] == "failed":
                assert batch["errors"]["data"]
            else:
                assert counts["completed"] + counts["failed"] == counts["total"] == len(lines)

        fuzz(st.lists(mutated(LINE), min_size=1, max_size=3), check, 15)
    fuzzed.check()
