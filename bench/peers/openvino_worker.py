"""OpenVINO GenAI's continuous batching. Arguments: model as OpenVINO's own, threads."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import openvino as ov
import openvino_genai as genai
from worker import Jobs, serve

folder, threads = sys.argv[1:]
scheduler = genai.SchedulerConfig()
scheduler.cache_size = 1  # GB
scheduler.dynamic_split_fuse = True
scheduler.enable_prefix_caching = True
pipeline = genai.ContinuousBatchingPipeline(
    folder, scheduler, "CPU", {"INFERENCE_NUM_THREADS": int(threads), "PERFORMANCE_HINT": "LATENCY"}
)
numbers = itertools.count()


def run(jobs: Jobs) -> int:
    handles = []  # a request whose handle is gone is dropped
    for prompt, output in jobs:
        config = genai.GenerationConfig(max_new_tokens=output, ignore_eos=True, do_sample=False)
        ids = ov.Tensor(np.array([prompt], dtype=np.int64))
        handles.append(pipeline.add_request(next(numbers), ids, config))
    while pipeline.has_non_finished_requests():
        pipeline.step()
    return sum(len(result.generated_ids) for handle in handles for result in handle.read_all())


serve(run)
