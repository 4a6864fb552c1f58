"""OpenVINO GenAI for cpu_peers.py: a line of JSON in, seconds out. Imports nothing of ours."""

import json
import sys
import time

import numpy as np
import openvino as ov  # type: ignore[import-not-found, unused-ignore]
import openvino_genai as genai  # type: ignore[import-not-found, unused-ignore]

scheduler = genai.SchedulerConfig()
scheduler.cache_size = 1
scheduler.dynamic_split_fuse = True
pipeline = genai.ContinuousBatchingPipeline(sys.argv[1], scheduler, "CPU")
count = 0
for line in sys.stdin:
    jobs = json.loads(line)
    started = time.perf_counter()
    for prompt, output in jobs:
        config = genai.GenerationConfig(max_new_tokens=output, ignore_eos=True, do_sample=False)
        pipeline.add_request(count, ov.Tensor(np.array([prompt], dtype=np.int64)), config)
        count += 1
    while pipeline.has_non_finished_requests():
        pipeline.step()
    print(time.perf_counter() - started, flush=True)
