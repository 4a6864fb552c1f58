"""Clients that nobody here wrote embed and rerank, with models behind one port.

Each suite has an environment of its own, which needs PyPI the first time. The clients of openai and ollama
are tested here.
"""

from __future__ import annotations

import base64
import math
import os
import re
import subprocess
from array import array
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import ollama
import openai
import pytest
from environments import python_of
from three_models import ThreeModels

HERE = Path(__file__).parent
SUITES = sorted(file.parent.name for file in HERE.glob("suites/*/requirements.txt"))
TEXTS = ["A cat sleeps.", "The engine plans a step.", "Blocks of keys and values are freed."]
OPTIONS = (
    *("-q", "-rs", "-c", "/dev/null", "--rootdir", ".", "--confcutdir", ".", "-p", "no:cacheprovider"),
    *("-o", "asyncio_mode=auto", "-W", "ignore", "--timeout", "120"),
    *("-o", "asyncio_default_test_loop_scope=session", "-o", "asyncio_default_fixture_loop_scope=session"),
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeModels]:
    server = ThreeModels(tmp_path_factory.mktemp("three"))
    try:
        yield server
        server.check()
    finally:
        server.end()


@pytest.fixture(params=[True, False], ids=["strict", "usual"])
def oai(three: ThreeModels, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    """By itself it asks for base64, and decodes it, which its strict mode does not take for floats."""
    with openai.OpenAI(
        base_url=f"{three.url}/v1", api_key="none", max_retries=0, _strict_response_validation=request.param
    ) as client:
        if request.param:
            client.embeddings.create = partial(client.embeddings.create, encoding_format="float")  # type: ignore[method-assign]
        yield client


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite(three: ThreeModels, suite: str) -> None:
    folder = HERE / "suites" / suite
    kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    ran = subprocess.run(
        [python_of(folder / "requirements.txt"), "-m", "pytest", *OPTIONS, *folder.glob("suite_*.py")],
        cwd=folder,
        env={**kept, "TURNOUT_URL": three.url},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None and int(passed[1]) >= 9, ran.stdout[-2000:]


def test_openais_client_embeds_as_the_folder_says(oai: openai.OpenAI, three: ThreeModels) -> None:
    found = oai.embeddings.create(model="embed", input=TEXTS)
    assert [each.index for each in found.data] == [0, 1, 2] and found.usage.prompt_tokens > 15
    for each in found.data:
        assert len(each.embedding) == 128 and math.hypot(*each.embedding) == pytest.approx(1, abs=1e-5)
    floats = oai.embeddings.create(model="embed", input=TEXTS, encoding_format="float")
    assert [each.embedding for each in floats.data] == [each.embedding for each in found.data]


def test_openais_client_gets_what_each_text_gets_alone(oai: openai.OpenAI, three: ThreeModels) -> None:
    many = oai.embeddings.create(model="embed", input=[f"{text} " * 20 for text in TEXTS] * 30)
    one = oai.embeddings.create(model="embed", input=f"{TEXTS[1]} " * 20)
    assert len(many.data) == 90
    assert many.data[1].embedding == many.data[4].embedding == one.data[0].embedding


def test_openais_client_sends_tokens_and_asks_for_dimensions(oai: openai.OpenAI, three: ThreeModels) -> None:
    ids = three.post("/tokenize", {"model": "embed", "prompt": TEXTS[0]}).json()["tokens"]
    asked = [oai.embeddings.create(model="embed", input=text) for text in (ids, [ids, ids], TEXTS[0])]
    assert len({tuple(each.embedding) for found in asked for each in found.data}) == 1
    (short,) = oai.embeddings.create(model="embed", input=ids, dimensions=16).data
    assert math.hypot(*short.embedding) == pytest.approx(1, abs=1e-5)
    raw = oai.embeddings.with_raw_response.create(
        model="embed", input=ids, dimensions=16, encoding_format="base64"
    )
    (coded,) = raw.http_response.json()["data"]
    assert array("f", base64.b64decode(coded["embedding"])).tolist() == short.embedding


def test_openais_client_reads_what_is_wrong(oai: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="the model's vectors have 128"):
        oai.embeddings.create(model="embed", input="a", dimensions=129)
    with pytest.raises(openai.NotFoundError, match="'chat', 'embed', 'rerank'"):
        oai.embeddings.create(model="text-embedding-3-small", input="a")
    with pytest.raises(openai.BadRequestError, match="generates no text"):
        oai.completions.create(model="embed", prompt="a")


def test_ollamas_client(three: ThreeModels) -> None:
    with ollama.Client(host=three.url) as client:
        many = client.embed("embed:latest", TEXTS)
        assert len(many.embeddings) == 3 and many.prompt_eval_count
        assert client.embed("embed", TEXTS[1]).embeddings[0] == many.embeddings[1]
        assert len(client.embed("embed", TEXTS[1], dimensions=8).embeddings[0]) == 8
        assert len(client.embed("embed", "word " * 5000).embeddings[0]) == 128, "cut, as Ollama cuts it"
        with pytest.raises(ollama.ResponseError, match="at most 512"):
            client.embed("embed", "word " * 5000, truncate=False)
        assert client.show("embed").capabilities == ["embedding"]
        assert "embedding" not in (client.show("chat").capabilities or ())
