"""What rounding alone makes is no reason to refuse a model, however a model amplifies it; another rule is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING

from turnout.core.errors import ModelError
from turnout.models.transformers_adapter.check import (
    check_flat_batch,
    computes_as_decoder,
    find_exchanges,
    flat_difference,
)
from turnout.models.transformers_adapter.exchange import dense
from turnout.models.transformers_adapter.exchange.layers import Exchanges
from turnout.models.transformers_adapter.reading import needed_version, read_spec
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import Trial, on_one_thread
from turnout.scripts.transformers_grid import RESULTS, SIZES

SERVED: Mapping[str, Any] = {
    kind: each for kind, each in json.loads(RESULTS.read_text())["models"].items() if "difference" in each
}
QUICK = frozenset(["deepseek_v3", "gemma2", "gemma3n_text", "gpt_oss", "llama", "qwen3_moe"])


def kinds() -> list[Any]:
    return [pytest.param(kind, marks=[] if kind in QUICK else [pytest.mark.slow]) for kind in SERVED]


def trial_of(kind: str) -> Trial:
    return Trial.of(shrunk(CONFIG_MAPPING[kind](), **SIZES.get(kind, {})))


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("kind", kinds())
def test_float64_leaves_nothing_of_what_rounding_makes(kind: str) -> None:
    if kind not in CONFIG_MAPPING or needed_version(SERVED[kind]["architecture"]):
        pytest.skip(f"the installed transformers does not compute {kind}")
    with on_one_thread():
        trial = trial_of(kind)
        wide, exchanges = trial.in_float64, find_exchanges(trial)
        assert wide.expected.dtype == torch.float64
        assert flat_difference(wide, exchanges) < 5e-6


def with_attention(monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor]) -> None:
    attended = dense.attended
    monkeypatch.setattr(dense, "attended", lambda q, *others: change(attended(q, *others)))


def as_amplified() -> Callable[[Tensor], Tensor]:
    """Returns what adds noise to each number: a thousand times what its type rounds off one."""
    noise = torch.Generator().manual_seed(0)

    def noisy(x: Tensor) -> Tensor:
        drawn = torch.randn(x.shape, generator=noise, dtype=x.dtype)
        return x * (1 + 1000 * torch.finfo(x.dtype).eps * drawn)

    return noisy


def test_amplified_rounding_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    with_attention(monkeypatch, as_amplified())
    trial = trial_of("llama")
    assert 1e-4 < flat_difference(trial, Exchanges()) < 1e-2, "float32 alone says no"
    check_flat_batch(trial, Exchanges())


def test_a_rule_that_differs_as_little_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with_attention(monkeypatch, lambda x: x * 1.002)
    trial = trial_of("llama")
    assert 1e-4 < flat_difference(trial, Exchanges()) < 1e-2
    with pytest.raises(ModelError, match="otherwise than each alone: logits differ by"):
        check_flat_batch(trial, Exchanges())


def test_where_float64_cannot_be_computed_float32_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = as_amplified()

    def narrow(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise RuntimeError("this operator knows no float64")
        return noisy(x)

    with_attention(monkeypatch, narrow)
    with pytest.raises(ModelError, match="logits differ by"):
        check_flat_batch(trial_of("llama"), Exchanges())


def test_turnouts_decoder_is_taken_where_only_rounding_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    config = shrunk(CONFIG_MAPPING["llama"]())
    spec = read_spec({**config.to_dict(), "architectures": ["LlamaForCausalLM"]})
    with_attention(monkeypatch, as_amplified())
    assert computes_as_decoder(config, Trial.of(config), spec)
