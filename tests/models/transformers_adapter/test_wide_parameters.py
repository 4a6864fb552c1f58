"""What transformers keeps in float32 stays so: always, or where a model computes in float16."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from turnout import LLM, SamplingParams


@pytest.mark.parametrize(
    ("kind", "dtype", "wide"),
    [
        ("gpt_oss", "float16", "norm"),  # `_keep_in_fp32_modules`
        ("gpt_oss", "bfloat16", "none"),
        ("ernie4_5_moe", "bfloat16", r"gate\.weight|moe_statics"),  # `_keep_in_fp32_modules_strict`
    ],
)
def test_parameters_stay_in_float32_where_transformers_says_so(
    kind: str, dtype: str, wide: str, small_model: Callable[..., Any]
) -> None:
    folder, _ = small_model(kind)
    llm = LLM(str(folder), model_impl="transformers", dtype=dtype, cpu_kernels="torch", kv_memory=2**24)
    served = {name: value.dtype for name, value in llm.engine.runner.model.named_parameters()}
    expected = {name: torch.float32 if re.search(wide, name) else getattr(torch, dtype) for name in served}
    assert served == expected
    (answer,) = llm.generate([[5, 6, 7]], SamplingParams(temperature=0, max_tokens=4), progress=False)
    assert len(answer.outputs[0].token_ids) == 4
