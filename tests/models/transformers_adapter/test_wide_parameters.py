"""What transformers keeps in float32 stays so: always, or where a model computes in float16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from turnout import LLM, SamplingParams


@pytest.mark.parametrize(
    ("kind", "dtype", "wide"),
    [
        ("gpt_oss", "float16", True),  # its norms, which `_keep_in_fp32_modules` names
        ("gpt_oss", "bfloat16", False),
        ("ernie4_5_moe", "bfloat16", True),  # its gates, which `_keep_in_fp32_modules_strict` names
    ],
)
def test_parameters_have_the_dtypes_that_transformers_gives_them(
    kind: str, dtype: str, wide: bool, small_model: Callable[..., Any]
) -> None:
    folder, _ = small_model(kind)
    llm = LLM(str(folder), model_impl="transformers", dtype=dtype, cpu_kernels="torch", kv_memory=2**24)
    expected = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    served = dict(llm.engine.runner.model.named_parameters(remove_duplicate=False))
    dtypes = {name: value.dtype for name, value in expected.named_parameters() if name in served}
    assert {name: served[name].dtype for name in dtypes} == dtypes
    assert (torch.float32 in dtypes.values()) == wide
    llm.generate([[5, 6, 7]], SamplingParams(temperature=0, max_tokens=4), progress=False)
