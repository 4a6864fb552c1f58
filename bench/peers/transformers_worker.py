"""transformers: ``generate`` on one padded batch, to the longest output. Arguments: model, dtype, threads."""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from worker import Jobs, serve

folder, dtype, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
model.eval()


@torch.inference_mode()
def run(jobs: Jobs) -> int:
    longest = max(len(prompt) for prompt, _ in jobs)
    output = max(output for _, output in jobs)
    padding = [longest - len(prompt) for prompt, _ in jobs]
    ids = [[0] * pad + prompt for pad, (prompt, _) in zip(padding, jobs, strict=True)]
    mask = [[0] * pad + [1] * len(prompt) for pad, (prompt, _) in zip(padding, jobs, strict=True)]
    out = model.generate(
        torch.tensor(ids),
        attention_mask=torch.tensor(mask),
        max_new_tokens=output,
        min_new_tokens=output,
        do_sample=False,
        pad_token_id=0,
    )
    assert out.shape[1] == longest + output
    return sum(output for _, output in jobs)


serve(run)
