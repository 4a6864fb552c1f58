"""Models with windows serve transformers' greedy tokens, in fp32, where prompts are longer than windows.

Layers with windows are then in KV groups that forget; prefixes are found where a checkpoint is, between
checkpoints and behind the answers of earlier turns. A few run by default, all with ``-m slow``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from beam_reference import Search, searched
from family_checkpoints import FAMILIES, VOCABULARY, write_model
from served import TIE, build

from turnout.core.engine.engine import Engine
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec, Resumption
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.kv_backends.paged.host.cache import PagedCache

TOKENS = 64
LONGEST = 512

MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gemma3": FAMILIES["gemma3"],
    "gemma2": FAMILIES["gemma2"],
    "mistral": FAMILIES["mistral-window"],
    "gpt-oss": FAMILIES["gpt-oss"],
    "qwen2": ("qwen2", {"use_sliding_window": True, "sliding_window": 100, "max_window_layers": 1}),
    # Served by the adapter.
    "cohere2": ("cohere2", {"sliding_window": 33, "logit_scale": 1.0, "sliding_window_pattern": 3}),
}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "at once": {"max_num_batched_tokens": 4096},
    "chunks": {"max_num_batched_tokens": 16},
    "small blocks": {"kv": "paged:block_size=4", "max_num_batched_tokens": 100},
    "plain kernels": {"cpu_kernels": "torch", "max_num_batched_tokens": 64},
    "drafts": {"decoding": "speculative:ngram=true,adaptive=false"},
    "recompute": {"preemption": "recompute", "max_num_batched_tokens": 64},
    "swap": {"preemption": "swap", "swap_memory": 2**26, "max_num_batched_tokens": 64},
}
QUICK = {("cohere2", "drafts")}


def cases() -> Iterator[Any]:
    for model in MODELS:
        for way in WAYS:
            marks = [] if (model, way) in QUICK else [pytest.mark.slow]
            yield pytest.param(model, way, marks=marks, id=f"{model}-{way}")


class Windowed:
    """A random checkpoint, and whether transformers finds tokens the most likely."""

    def __init__(self, name: str, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        write_model(*MODELS[name], folder, seed=len(name))
        self.folder = folder
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def check(self, prompt: list[int], tokens: list[int]) -> None:
        ids = torch.tensor([prompt + tokens[:-1]])
        logits = self.model(ids, use_cache=False).logits[0, len(prompt) - 1 :]
        chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        behind = logits.max(-1).values - chosen
        assert float(behind.max()) <= TIE * float(logits.abs().max()), (len(prompt), behind.nonzero()[0])

    def engine(self, positions: int | None = None, **options: Any) -> Engine:
        """positions: of KV memory."""
        options = {"max_model_len": LONGEST, "kv": "paged", "max_num_seqs": 16, **options}
        engine = build(self.folder, kv_memory="64MiB", **options)
        if positions is not None:
            memory = 2**26 * positions // engine.scheduler.kv.capacity
            engine = build(self.folder, kv_memory=memory, **options)
        assert isinstance(engine.scheduler.kv, PagedCache) and engine.scheduler.kv.snapshot().groups
        return engine


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return lru_cache(lambda name: Windowed(name, tmp_path_factory.mktemp(name)))


def words(count: int, seed: int) -> list[int]:
    return torch.randint(VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def first_turns() -> list[list[int]]:
    """16 prompts, eight of which begin with the same 150 tokens, and two of which are the same."""
    common = words(150, seed=1)
    lengths = (12, 190, 81, 5, 120, 64, 160, 33)
    alike = [common + words(length, seed=length) for length in lengths]
    others = [words(length + 60, seed=100 + length) for length in lengths[1:]]
    return [*alike, *others, alike[2]]


def second_turns(first: Sequence[list[int]], answers: Sequence[list[int]]) -> list[list[int]]:
    """What goes on behind answers, parts from them or from prompts, and what is sent again."""
    lengths = [(64, 9), (64, 40), (50, 21), (7, 3), (64, 1), (0, 30), (33, 17), (64, 5)]
    """Of the part of the answer that is kept, and of what follows it."""
    turns = [
        [*prompt, *answer[:kept], *words(asked, seed=asked)]
        for prompt, answer, (kept, asked) in zip(first, answers, lengths, strict=False)
    ]
    cuts = [(9, 200), (10, 131), (11, 96), (12, 64)]
    parted = [[*first[number][:kept], *words(20, seed=kept)] for number, kept in cuts]
    return [*turns, *parted, first[0], first[9], [*first[1][:150], *words(44, seed=6)], first[13]]


def serve(engine: Engine, prompts: Sequence[list[int]], n: int = 1) -> list[list[list[int]]]:
    """The choices of each prompt."""
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, n=n)
    for number, prompt in enumerate(prompts):
        engine.add(RequestSpec(id=str(number), prompt=prompt, params=params, seed=number))
    outputs: list[list[list[int]]] = [[[] for _ in range(n)] for _ in prompts]
    for delta in _deltas(engine):
        outputs[int(delta.request_id)][delta.index] += delta.tokens
    assert engine.scheduler.kv.free == engine.scheduler.kv.capacity
    return outputs


def _deltas(engine: Engine) -> Iterator[Delta]:
    while engine.busy:
        for delta in engine.step():
            assert not delta.error, delta
            yield delta


@pytest.mark.parametrize(("name", "way"), list(cases()))
def test_two_turns_of_sixteen(windowed: Any, name: str, way: str) -> None:
    model = windowed(name)
    preempts = "preemption" in WAYS[way]
    engine = model.engine(700 if preempts else None, **WAYS[way])
    first = first_turns()
    answers = [choices[0] for choices in serve(engine, first)]
    before = engine.scheduler.kv.snapshot().hits
    second = second_turns(first, answers)
    more = [choices[0] for choices in serve(engine, second)]
    for prompt, answer in zip([*first, *second], [*answers, *more], strict=True):
        model.check(prompt, answer)
    assert len({token for answer in answers for token in answer}) > 20
    if preempts:
        assert engine.stats().preemptions and (engine.stats().swap_outs > 0) == (way == "swap")
    else:
        assert engine.scheduler.kv.snapshot().hits - before > sum(map(len, second)) // 2


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "gemma2" else [pytest.mark.slow]) for name in MODELS]
)
def test_choices_beams_and_what_another_engine_began(windowed: Any, name: str) -> None:
    model = windowed(name)
    prompts = first_turns()[:4]
    engine = model.engine(max_num_batched_tokens=100)
    whole = serve(engine, prompts, n=3)
    for prompt, choices in zip(prompts, whole, strict=True):
        model.check(prompt, choices[0])
        assert choices[1] == choices[2] == choices[0]
    _check_beams(model, engine, prompts)
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    for number, (prompt, choices) in enumerate(zip(prompts, whole, strict=True)):
        begun = RequestSpec(id=str(number), prompt=prompt, params=params, seed=number)
        engine.add(msgspec.structs.replace(begun, resume=Resumption(choices=[(0, choices[0][:40])])))
    rest: dict[str, list[int]] = {}
    for delta in _deltas(engine):
        rest.setdefault(delta.request_id, []).extend(delta.tokens)
    assert [rest[str(number)] for number in range(4)] == [choices[0][40:] for choices in whole]


def _check_beams(model: Windowed, engine: Engine, prompts: Sequence[list[int]]) -> None:
    search = Search(3)
    expected = [beams for prompt in prompts for beams in searched(model.model, [prompt], search)]
    assert expected, "all tie"
    for number, beams in enumerate(expected):
        engine.add(RequestSpec(id=str(number), prompt=beams.prompt, params=search.params(), seed=0))
    found: dict[tuple[str, int], list[int]] = {}
    for delta in _deltas(engine):
        found.setdefault((delta.request_id, delta.index), []).extend(delta.tokens)
    for number, beams in enumerate(expected):
        assert [found[str(number), index] for index in range(3)] == beams.tokens
