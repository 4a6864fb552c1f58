"""A served turnout-tiny whose plugins fail: policies at every call, KV and layers once, amid streams."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tiny_server import TinyServer, serving

PLUGINS = '''
from pathlib import Path

from torch import nn

from turnout import EvictionPolicy, KVBackend, LogitsProcessor, Quantizer, SchedulingPolicy, hookimpl
from turnout.plugins.kv_backends.paged.backend import Paged

HERE = Path({folder!r})


def strike(what):
    """Raise once, when a file of that name is there."""
    file = HERE / what
    if file.exists():
        file.unlink()
        raise RuntimeError("oops")


class Order(SchedulingPolicy):
    def order(self, view):
        raise RuntimeError("oops")


class Eviction(EvictionPolicy):
    def add(self, block):
        raise RuntimeError("oops")

    remove = pop = add


class KV(Paged):
    def attention(self, spec, cache, context):
        attention = super().attention(spec, cache, context)

        class Broken(type(attention)):
            def bind(self, plan):
                strike("kv")
                return super().bind(plan)

        attention.__class__ = Broken
        return attention


class Layer(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        strike("layer")
        return self.linear(x)


class Layers(Quantizer):
    def wants(self, name, linear):
        return name.endswith("down_proj")

    def convert(self, linear, context):
        return Layer(linear)


class Words(LogitsProcessor):
    extra_args = ("theirs",)

    def wants(self, params):
        return "theirs" in params.extra_args

    def apply(self, logits, rows):
        if (HERE / "interrupt").exists():
            raise KeyboardInterrupt
        raise RuntimeError("oops")


def offers(kind, factory):
    return hookimpl(lambda register: register("theirs", factory), specname=kind)


register_schedulers = offers("register_schedulers", Order)
register_evictions = offers("register_evictions", Eviction)
register_kv_backends = offers("register_kv_backends", KV)
register_quantizers = offers("register_quantizers", Layers)
register_logits_processors = offers("register_logits_processors", Words)
'''
KINDS = ("--scheduler", "--kv-eviction", "--kv", "--quantization")
BODY = {"max_tokens": 100, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "turnout_plugins.py").write_text(PLUGINS.replace("{folder!r}", repr(str(folder))))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[TinyServer]:
    chosen = [flag for kind in KINDS for flag in (kind, "theirs")]
    with serving("--kv-memory", "64MiB", "--plugins-folder", str(folder), *chosen) as server:
        yield server


def complete(server: TinyServer, number: int, **body: object) -> httpx.Response:
    given = {"prompt": f"def f{number}(x):", **BODY, **body}
    return httpx.post(f"{server.url}/v1/completions", json=given, timeout=120)


def texts(server: TinyServer, before: Path | None = None) -> list[str]:
    """What several requests get together; a fault begins `before` they end."""
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(complete, server, number) for number in range(4)]
        if before is not None:
            before.touch()
        return [answer.result(120).json()["choices"][0]["text"] for answer in answers]


@pytest.mark.slow
def test_faults_cost_no_request_of_somebody_else(server: TinyServer, folder: Path) -> None:
    whole = texts(server)
    for what, named in (
        ("kv", "kv 'theirs' of turnout_plugins.py: bind failed: RuntimeError: oops"),
        ("layer", "quantization 'theirs' of turnout_plugins.py: forward failed: RuntimeError: oops"),
    ):
        assert texts(server, folder / what) == whole, f"{what}: others got other tokens"
        assert not (folder / what).exists(), "it did not fail"
        assert f"{named}; starting another engine" in server.text()
    refused = complete(server, 0, vllm_xargs={"theirs": 1})
    assert refused.status_code == 500
    named = "logits_processor 'theirs' of turnout_plugins.py: apply failed: RuntimeError: oops"
    assert refused.json()["error"]["message"] == named
    assert "scheduler 'theirs' of turnout_plugins.py: order failed: RuntimeError: oops" in server.text()
    assert "kv_eviction 'theirs' of turnout_plugins.py: add failed: RuntimeError: oops" in server.text()
    server.health()
    assert server.answer() == server.tokens


@pytest.mark.slow
def test_an_interrupt_of_a_plugin_is_the_plugins(server: TinyServer, folder: Path) -> None:
    """It ended engine after engine as if somebody else had, so that no request was ever to blame."""
    whole = complete(server, 1).json()["choices"][0]["text"]
    (folder / "interrupt").touch()
    with ThreadPoolExecutor(1) as pool:
        guest = pool.submit(complete, server, 1)
        refused = complete(server, 0, vllm_xargs={"theirs": 1})
        assert guest.result().json()["choices"][0]["text"] == whole
    (folder / "interrupt").unlink()
    assert refused.status_code == 500
    named = "logits_processor 'theirs' of turnout_plugins.py: apply failed: KeyboardInterrupt"
    assert f"{named}; starting another engine" in server.text()
