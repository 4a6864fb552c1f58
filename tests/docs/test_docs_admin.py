"""The pages of the admin API, of deadlines and of timing have every field, and their examples are valid."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from documents import ROOT, Document, code, rows
from pydantic import BaseModel

from turnout.core.errors import Dropped
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import PluginStates, SchedulerState
from turnout.lab.ab.live_trial import LiveTrial
from turnout.server.admin.ab import ABReport, ArmChange, ArmState
from turnout.server.admin.kv import KVReport
from turnout.server.admin.models import ModelChange
from turnout.server.admin.prefixes import PrefixList, PrefixRequest, PrefixState
from turnout.server.admin.scheduler import PolicyChange
from turnout.server.engine.replies import ADMIN_TIMEOUT_SECONDS
from turnout.server.http.errors import ErrorBody, error_body
from turnout.server.protocol.completions import CompletionRequest
from turnout.server.protocol.responses import Envelope, TimedEnvelope, TimingReport

DOCUMENT = Document(ROOT / "docs" / "reference" / "admin-api.md")
TIMES = Document(ROOT / "docs" / "reference" / "deadlines-and-timing.md")


def test_the_comparison_of_arms_has_its_fields() -> None:
    listed = {name for row in rows(DOCUMENT.section("The arms of a live test")) for name in code(row[0])}
    results = LiveTrial("base", "long").results({}).keys() - {"differences"}
    assert listed == results | {*ArmState.__struct_fields__}


REQUESTS: dict[str, type[BaseModel]] = {
    "/admin/ab": ArmChange,
    "/admin/models": ModelChange,
    "/admin/scheduler": PolicyChange,
    "/admin/prefixes": PrefixRequest,
    "/v1/completions": CompletionRequest,
}


def test_requests_are_valid() -> None:
    calls = re.findall(
        r"curl http://\S+?:\d+(/\S+) [^{`]*-d '(.*?)'$", DOCUMENT.text + TIMES.text, re.DOTALL | re.MULTILINE
    )
    assert {path for path, _ in calls} == set(REQUESTS)
    for path, body in calls:
        asked = REQUESTS[path].model_validate(json.loads(body))
        if isinstance(asked, PolicyChange):
            assert f'"scheduler": "{asked.spec()}"' in DOCUMENT.text
            Registry.load().check("scheduler", asked.spec())
        if isinstance(asked, CompletionRequest):
            assert not asked.model_extra


@pytest.mark.parametrize("block", [*DOCUMENT.blocks("json"), *TIMES.blocks("json")])
def test_answers_have_the_form_of_answers(block: str) -> None:
    answer: dict[str, Any] = json.loads(block)
    if "choices" in answer:
        on_request = {"prompt_logprobs", "prompt_token_ids"}
        assert set(answer) == set(TimedEnvelope.__struct_fields__) - on_request
        assert set(TimedEnvelope.__struct_fields__) == {*Envelope.__struct_fields__, "timing"}
        answer, struct = answer["timing"], TimingReport
    else:
        struct = next(struct for key, struct in ANSWERS.items() if key in answer)
    shown = json.loads(msgspec.json.encode(msgspec.convert(answer, struct)))
    shown.pop("type", None)  # of messages: what they are called on the wire
    assert shown == answer


ANSWERS: dict[str, Any] = {
    "arms": ABReport,
    "error": ErrorBody,
    "scheduler": SchedulerState,
    "plugins": PluginStates,
    "backend": KVReport,
    "prefixes": PrefixList,
    "cached": PrefixState,
    "deleted": dict[str, str | bool],
}


def test_what_is_said_of_errors_is_so() -> None:
    assert f"after {ADMIN_TIMEOUT_SECONDS:g} seconds" in " ".join(DOCUMENT.text.split())
    dropped = error_body(Dropped("x")).error
    assert f'"type": "{dropped.type}"' in TIMES.text and f'"code": "{dropped.code}"' in TIMES.text
