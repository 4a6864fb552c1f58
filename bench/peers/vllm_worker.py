"""vLLM on a CPU, in this process. Arguments: model, dtype."""

from __future__ import annotations

import sys

from vllm import LLM, SamplingParams
from worker import Jobs, serve

folder, dtype = sys.argv[1:]
if __name__ == "__main__":
    engine = LLM(model=folder, dtype=dtype, max_model_len=1024, max_num_seqs=32, skip_tokenizer_init=True)

    def run(jobs: Jobs) -> int:
        prompts = [{"prompt_token_ids": prompt} for prompt, _ in jobs]
        params = [
            SamplingParams(temperature=0, max_tokens=output, ignore_eos=True, detokenize=False)
            for _, output in jobs
        ]
        done = engine.generate(prompts, params, use_tqdm=False)
        return sum(len(each.outputs[0].token_ids) for each in done)

    serve(run)
