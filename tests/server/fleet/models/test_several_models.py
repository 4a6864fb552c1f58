"""Several models behind one port: chosen by name, apart from each other in all that they have."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from running_server import eventually
from server_process import ServerProcess

from turnout.config import EngineConfig, ModelConfig, ServerConfig
from turnout.core.errors import ConfigError, ModelError
from turnout.server.fleet.models.encoders import is_encoder, without_options_of_decoders
from turnout.server.fleet.models.memory import check_given_memory, check_pools, least_weights
from turnout.server.serve import found_folders

SCRIPT = """
import sys
from pathlib import Path
from turnout.cli.options.engine_options import served_configs
from turnout.core.errors import TurnoutError
from turnout.server.serve import serve

*models, file, factory = sys.argv[1:]
try:
    engine, server, several = served_configs({"models": models, "config_file": Path(file)})
    code = serve(engine, server, None, several, factory=factory)
except TurnoutError as error:
    code = f"{type(error).__name__}: {error}"
assert "torch" not in sys.modules
sys.exit(code)
"""
TEXT = "hello again"


def settings(folder: Path, text: str) -> Path:
    file = folder / "serve.yaml"
    file.write_text(f"port: 0\nshutdown-timeout: 0\n{text}")
    return file


class Two(NamedTuple):
    """A server of two models; its log goes on after the line with the address."""

    process: ServerProcess
    url: str


@pytest.fixture(scope="module")
def two(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    file = settings(
        tmp_path_factory.mktemp("two"),
        f"max-num-seqs: 8\nmodels:\n  chat:\n    model: {folder}\n    served-model-name: [gpt, talker]\n"
        f"    max-num-seqs: 3\n    replicas: 2\n  code: {folder}\n",
    )
    server = ServerProcess(SCRIPT, file)
    try:
        yield Two(server, server.url())
    finally:
        server.end()


@pytest.fixture
def http(two: Two) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=two.url, timeout=20) as client:
        yield client


def test_models_are_listed_with_their_state(two: Two, http: httpx.Client) -> None:
    listed = {card["id"]: card for card in http.get("/v1/models").json()["data"]}
    assert list(listed) == ["chat", "code"]
    assert listed["chat"]["aliases"] == ["gpt", "talker"] and listed["chat"]["state"] == "loaded"
    assert http.get("/v1/models/gpt").json()["id"] == "chat"
    assert [card["name"] for card in http.get("/api/tags").json()["models"]] == ["chat:latest", "code:latest"]
    assert "model chat:\n" in two.process.output and "model code:\n" in two.process.output


MESSAGES = [{"role": "user", "content": TEXT}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": TEXT, "max_tokens": 4},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 4},
    "/v1/responses": {"input": TEXT, "max_output_tokens": 4},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 4},
    "/api/chat": {"messages": MESSAGES, "stream": False, "options": {"num_predict": 4}},
    "/api/generate": {"prompt": TEXT, "stream": False, "options": {"num_predict": 4}},
    "/tokenize": {"prompt": TEXT},
    "/detokenize": {"tokens": [5, 6]},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/api/show": {},
}


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_names_its_model(http: httpx.Client, path: str) -> None:
    """By name or alias; another name is refused with those that there are, and so is none."""
    for name in ("chat", "talker", "code"):
        answer = http.post(path, json={**REQUESTS[path], "model": name})
        assert answer.status_code == 200, answer.text
        said = answer.json().get("model")
        assert said in (None, name) or (name, said) == ("talker", "chat")
    unknown = http.post(path, json={**REQUESTS[path], "model": "chatt"})
    assert unknown.status_code == 404
    assert "'chat', 'gpt', 'talker', 'code'" in unknown.text
    missing = http.post(path, json=REQUESTS[path])
    assert missing.status_code == 400 and "model" in missing.text


@pytest.mark.parametrize("path", ["scheduler", "kv", "plugins", "prefixes", "replicas", "rollout"], ids=str)
def test_an_admin_request_names_its_model(http: httpx.Client, path: str) -> None:
    assert http.get(f"/admin/{path}", params={"model": "code"}).status_code == 200
    refused = http.get(f"/admin/{path}")
    assert refused.status_code == 400 and "?model=" in refused.text and "'code'" in refused.text


def test_a_rollout_is_of_one_model(http: httpx.Client) -> None:
    begun = http.post(
        "/admin/rollout", params={"model": "code"}, json={"action": "start", "changes": {"max_num_seqs": 5}}
    )
    assert begun.status_code == 200, begun.text
    eventually(lambda: http.get("/admin/rollout", params={"model": "code"}).json()["state"] == "done", 30)
    assert http.get("/admin/rollout", params={"model": "chat"}).json()["state"] == "none"


def test_a_model_has_its_own_replicas_and_limits(http: httpx.Client) -> None:
    of = {
        name: http.get("/admin/replicas", params={"model": name}).json()["replicas"]
        for name in ("chat", "code")
    }
    assert {name: len(replicas) for name, replicas in of.items()} == {"chat": 2, "code": 1}


def test_metrics_are_told_apart_by_model(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"model": "code", "prompt": TEXT, "max_tokens": 4})
    text = http.get("/metrics").text
    for name in ("chat", "code"):
        assert f'turnout:generation_tokens_total{{model_name="{name}"}}' in text
    assert text.count("# TYPE turnout:generation_tokens_total ") == 1


def test_an_engine_that_dies_takes_only_its_own_streams_along(two: Two, http: httpx.Client) -> None:
    """Those resume; the other model's engine is not asked, and its health stays."""
    before = http.get("/metrics").text
    streams: dict[str, list[str]] = {"chat": [], "code": []}

    def read(name: str) -> None:
        body = {"model": name, "prompt": TEXT, "max_tokens": 150, "stream": True, "user": "slow"}
        with httpx.stream("POST", f"{two.url}/v1/completions", json=body, timeout=60) as response:
            streams[name] += [line for line in response.iter_lines() if line]

    threads = [threading.Thread(target=read, args=(name,)) for name in streams]
    engines = set(two.process.children())
    for thread in threads:
        thread.start()
    victim = _engine_of(http, "code")
    eventually(lambda: http.get("/metrics").text != before and _running(http, "code") == 1, 20)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: http.get("/health").json()["models"]["code"] == "restarting", 10)
    health = http.get("/health")
    assert health.status_code == 200 and health.json()["models"]["chat"] == "ok"
    assert http.get("/health", params={"model": "code"}).status_code in (200, 503)
    answer = http.post("/v1/completions", json={"model": "chat", "prompt": TEXT, "max_tokens": 4})
    assert answer.status_code == 200
    for thread in threads:
        thread.join(60)
    for lines in streams.values():
        assert lines[-1] == "data: [DONE]" and not any('"error"' in line for line in lines)
    assert engines - set(two.process.children()) == {victim}
    for name, restarts in (("chat", 0), ("code", 1)):
        assert sum(_restarts(http, name)) == restarts


def _restarts(http: httpx.Client, name: str) -> list[int]:
    replicas = http.get("/admin/replicas", params={"model": name}).json()["replicas"]
    return [replica["restarts"] for replica in replicas]


def _running(http: httpx.Client, name: str) -> int:
    replicas = http.get("/admin/replicas", params={"model": name}).json()["replicas"]
    return sum(replica["requests"] for replica in replicas)


def _engine_of(http: httpx.Client, name: str) -> int:
    (replica,) = http.get("/admin/replicas", params={"model": name}).json()["replicas"]
    pid = replica["pid"]
    assert isinstance(pid, int)
    return pid


# ------------------------------------------------------------------ what is refused before anything starts


def model(name: str, where: object, **engine: Any) -> ModelConfig:
    return ModelConfig(name, EngineConfig(model=str(where), **engine), ServerConfig())


def test_a_folder_that_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model 'code': cannot find the model .*nowhere"):
        found_folders([model("chat", folder), model("code", tmp_path / "nowhere")])


def test_models_that_cannot_fit_are_refused_with_the_sums(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(2**20))
    (tmp_path / "config.json").write_text('{"dtype": "bfloat16"}')
    one = model("chat", tmp_path, device="cpu", kv_memory=2**30)
    other = model("code", tmp_path, device="cpu", kv_memory=2**31, dtype="float32")
    check_given_memory([(one, tmp_path), (other, tmp_path)], 2**32)
    with pytest.raises(ConfigError, match=r"chat 0\.00 GiB of weights \+ 1\.00 GiB of KV .* = 3\.00 GiB"):
        check_given_memory([(one, tmp_path), (other, tmp_path)], 3 * 2**30)
    assert least_weights(tmp_path, one.engine) == 2**20
    assert least_weights(tmp_path, other.engine) == 2**20  # at least: the engine may widen them
    with pytest.raises(ConfigError, match=r"chat 1\.00 GiB \+ code 2\.00 GiB = 3\.00 GiB"):
        check_pools({"chat": 2**30, "code": 2**31}, 2**30)


def test_a_common_kv_memory_is_not_an_encoders(tmp_path: Path) -> None:
    """It counts once in the sums. What an encoder's own section gives stays, for its engine to refuse."""
    decoder, encoder = tmp_path / "decoder", tmp_path / "encoder"
    for where, kind, name in ((decoder, "qwen2", "Qwen2ForCausalLM"), (encoder, "bert", "BertModel")):
        where.mkdir()
        (where / "model.safetensors").write_bytes(bytes(2**20))
        (where / "config.json").write_text(json.dumps({"model_type": kind, "architectures": [name]}))
    models = [model("chat", decoder, device="cpu", kv_memory=2**30, block_size=8)]
    models.append(replace(models[0], name="embed"))
    folders = [decoder, encoder]
    chat, embed = without_options_of_decoders(models, folders)
    assert (chat.engine.kv_memory, embed.engine.kv_memory, embed.engine.block_size) == (2**30, None, None)
    check_given_memory(list(zip([chat, embed], folders, strict=True)), 2**30 + 2**22)
    own = [models[0], replace(models[1], own=frozenset({"kv_memory"}))]
    assert without_options_of_decoders(own, folders)[1].engine.kv_memory == 2**30


@pytest.mark.parametrize(
    ("config", "encodes"),
    [
        ({"model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"]}, True),
        ({"model_type": "modernbert"}, True),
        ({"model_type": "bert", "architectures": ["BertLMHeadModel"]}, False),
        ({"model_type": "bert", "architectures": ["BertModel"], "is_decoder": True}, False),
        ({"model_type": "qwen3", "architectures": ["Qwen3Model"]}, False),
        ({"model_type": ["bert"], "architectures": 3}, False),
        (["bert"], False),
    ],
)
def test_encoders_are_known_by_their_type(tmp_path: Path, config: object, encodes: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert is_encoder(tmp_path) == encodes
