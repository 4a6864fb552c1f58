"""llama.cpp, by its C interface: prompts in batches, then all sequences a token at a time.

Arguments: GGUF file, threads. Nothing is shared between sequences, as in its server, whose slots each have
their own memory.
"""

from __future__ import annotations

import ctypes
import sys

import llama_cpp as ll
import numpy as np
from worker import Jobs, serve

BATCH = 512
SEQUENCES = 32

file, threads = sys.argv[1:]
ll.llama_backend_init()
model = ll.llama_model_load_from_file(file.encode(), ll.llama_model_default_params())
if not model:
    sys.exit(f"llama.cpp cannot load {file}")
vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
parameters = ll.llama_context_default_params()
parameters.n_ctx, parameters.n_seq_max, parameters.kv_unified = SEQUENCES * 1024, SEQUENCES, True
parameters.n_batch = parameters.n_ubatch = BATCH
parameters.n_threads = parameters.n_threads_batch = int(threads)
context = ll.llama_init_from_model(model, parameters)
batch = ll.llama_batch_init(BATCH, 0, 1)


class Sequence:
    def __init__(self, number: int, prompt: list[int], output: int) -> None:
        self.number, self.pending, self.position, self.left = number, list(prompt), 0, output


def run(jobs: Jobs) -> int:
    ll.llama_memory_clear(ll.llama_get_memory(context), True)
    live = [Sequence(number, prompt, output) for number, (prompt, output) in enumerate(jobs)]
    tokens = 0
    while live:
        for place, sequence in step(live):
            logits = ll.llama_get_logits_ith(context, place)
            token = int(np.argmax(np.ctypeslib.as_array(logits, shape=(vocabulary,))))
            sequence.pending, sequence.left = [token], sequence.left - 1
            tokens += 1
        live = [sequence for sequence in live if sequence.left]
    return tokens


def step(live: list[Sequence]) -> list[tuple[int, Sequence]]:
    """One batch, sequences that decode first; the places of the logits of those that are to get a token."""
    batch.n_tokens, ready = 0, []
    for sequence in sorted(live, key=lambda sequence: len(sequence.pending)):
        chunk = sequence.pending[: BATCH - batch.n_tokens]
        for token in chunk:
            put(token, sequence)
        del sequence.pending[: len(chunk)]
        if chunk and not sequence.pending:
            batch.logits[batch.n_tokens - 1] = True
            ready.append((batch.n_tokens - 1, sequence))
    if code := ll.llama_decode(context, batch):
        sys.exit(f"llama_decode failed with {code}")
    return ready


def put(token: int, sequence: Sequence) -> None:
    place = batch.n_tokens
    batch.token[place], batch.pos[place], batch.logits[place] = token, sequence.position, False
    batch.n_seq_id[place] = 1
    batch.seq_id[place][0] = ctypes.c_int32(sequence.number).value
    sequence.position += 1
    batch.n_tokens += 1


serve(run)
