"""What the toy's strategies must give: everything computed again for every token, nothing kept."""

from __future__ import annotations

from turnout.core.types.request import RequestSpec
from turnout.testing.toy.model import EOS, VOCABULARY, argmax, log_softmax, toy_logits
from turnout.testing.toy.runner import Model

__all__ = ["expected"]


def expected(spec: RequestSpec, model: Model = toy_logits) -> list[list[int]]:
    """The outputs of a request to the toy's strategies, sorted."""
    (strategy,) = spec.params.stop
    n, limit = spec.params.n, spec.params.max_tokens
    assert limit is not None
    if strategy == "beam":
        return sorted(_beam(model, spec.prompt, n, limit))
    first = model(spec.prompt)
    best = sorted(range(VOCABULARY), key=lambda t: -first[t])
    return sorted(_greedy(model, spec.prompt, [token], limit) for token in best[:n])


def _greedy(model: Model, prompt: list[int], output: list[int], limit: int) -> list[int]:
    while len(output) < limit and output[-1] != EOS:
        output = [*output, argmax(model(prompt + output))]
    return output


def _beam(model: Model, prompt: list[int], width: int, limit: int) -> list[list[int]]:
    live, done = [(0.0, list[int]())], []
    for step in range(limit):
        pool = [
            (score + lp, tokens, token)
            for score, tokens in live
            for token, lp in enumerate(log_softmax(model(prompt + tokens)))
        ]
        pool.sort(key=lambda c: (-c[0], c[1], c[2]))
        kept = [(score, [*tokens, token]) for score, tokens, token in pool[: len(live) if step else width]]
        done += [tokens for _, tokens in kept if tokens[-1] == EOS or len(tokens) == limit]
        live = [(score, tokens) for score, tokens in kept if tokens[-1] != EOS and len(tokens) < limit]
        if not live:
            break
    return done
