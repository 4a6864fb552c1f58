"""Embeds lists of texts, a line of JSON each; says the seconds and the first text's vector.

Arguments: backend, model, dtype, threads, clock (wall or cpu). It runs in its peer's environment, and imports
Turnout only where that is the backend.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Embed = Callable[[list[str]], Any]
"""Returns vectors that can be indexed."""

# Libraries write to standard output as they please: answers get a descriptor of their own.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def turnout(model: str, dtype: str) -> Embed:
    from turnout import LLM

    llm = LLM(model=model, dtype=dtype)
    return lambda texts: llm.embed(texts)


def sentence_transformers(backend: str, model: str, dtype: str, threads: int) -> Embed:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    options: dict[str, Any] = {"torch_dtype": getattr(torch, dtype)}
    if backend == "onnx":
        import onnxruntime

        session = onnxruntime.SessionOptions()
        session.intra_op_num_threads = threads
        options = {"session_options": session, "provider": "CPUExecutionProvider", "export": True}
    elif backend == "openvino":
        precision = {"float32": "f32", "bfloat16": "bf16"}[dtype]
        settings = {"INFERENCE_NUM_THREADS": str(threads), "INFERENCE_PRECISION_HINT": precision}
        options = {"ov_config": settings, "export": True}
    found = SentenceTransformer(model, device="cpu", backend=backend, model_kwargs=options)
    return lambda texts: found.encode(texts, batch_size=32, show_progress_bar=False)


def vllm(model: str, dtype: str) -> Embed:
    from vllm import LLM

    llm = LLM(model=model, runner="pooling", dtype=dtype, max_model_len=512)
    return lambda texts: [each.outputs.embedding for each in llm.embed(texts, use_tqdm=False)]


def main() -> None:
    backend, model, dtype, threads, clock = sys.argv[1:]
    now = time.process_time if clock == "cpu" else time.perf_counter
    if backend == "turnout":
        embed = turnout(model, dtype)
    elif backend == "vllm":
        embed = vllm(model, dtype)
    else:
        embed = sentence_transformers(backend, model, dtype, int(threads))
    say(0.0, [])
    for line in sys.stdin:
        texts = json.loads(line)
        started = now()
        vectors = embed(texts)
        seconds = now() - started
        say(seconds, [float(number) for number in vectors[0]])


def say(seconds: float, vector: list[float]) -> None:
    print(json.dumps([seconds, vector]), file=_answers, flush=True)


main()
