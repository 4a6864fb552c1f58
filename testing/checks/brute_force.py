"""The outputs of the toy's strategies by brute force: everything is computed anew for every token."""

from __future__ import annotations

from turnout.core.types.request import RequestSpec
from turnout.testing.checks.messages import shown
from turnout.testing.toy.engine import ToyOutcome
from turnout.testing.toy.model import EOS, VOCABULARY, argmax, log_softmax, toy_logits
from turnout.testing.toy.runner import Model

__all__ = ["assert_expected_tokens", "expected"]


def assert_expected_tokens(
    spec: RequestSpec, outcome: ToyOutcome, model: Model = toy_logits, *, case: str = ""
) -> None:
    """Fails unless the request got the tokens that brute force gives; `case` says what was served how."""
    found, wanted = outcome.outputs(spec.id), expected(spec, model)
    assert found == wanted, (
        f"{case}{': ' if case else ''}request {spec.id} got the tokens {found}; expected {wanted}, as "
        f"without KV memory and other requests; the request: {shown(spec)}"
    )


def expected(spec: RequestSpec, model: Model = toy_logits) -> list[list[int]]:
    """The outputs of a request to one of the toy's strategies, sorted; its ``stop`` names the strategy."""
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
