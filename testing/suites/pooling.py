"""The conformance suite of pooling strategies."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from turnout.core.engine.pooling.folding import fold
from turnout.core.interfaces.pooling import BLOCK, Pooling
from turnout.core.types.pooling import PoolingParams, PromptPooling
from turnout.testing.suites.suite import Suite

__all__ = ["PoolingSuite"]

LENGTHS = (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17)


class PoolingSuite(Suite[Pooling]):
    """Vectors depend on a prompt's hidden states alone: neither on chunks, nor on other prompts."""

    kind = "pooling"

    size: ClassVar[int] = 24
    """Numbers of a hidden state."""

    def test_it_declares_what_it_reads(self) -> None:
        made = self.make()
        known = ("first", "last", "all")
        assert made.reads in known, f"`reads` is {made.reads!r}; expected one of {known}"
        assert isinstance(made.per_token, bool), f"`per_token` is {made.per_token!r}; expected a bool"
        assert made.reads == "all" or not made.per_token, "a vector for each token needs `reads` to be all"

    def test_vectors_have_their_shape(self) -> None:
        for length in LENGTHS:
            for dtype in (torch.float32, torch.bfloat16):
                vectors = self._pooled(self.make(), _hidden(length, self.size).to(dtype))
                if self.make().per_token:
                    assert vectors.ndim == 2 and len(vectors) == length, _shape(vectors, f"[{length}, size]")
                else:
                    assert vectors.ndim == 1, _shape(vectors, "[size]")
                assert vectors.dtype == torch.float32, f"the vectors are {vectors.dtype}; expected float32"
                assert vectors.isfinite().all(), f"the vector of {length} tokens has NaN or infinity"

    def test_vectors_have_the_same_size_for_every_prompt(self) -> None:
        sizes = {self._pooled(self.make(), _hidden(length, self.size)).shape[-1] for length in LENGTHS}
        assert len(sizes) == 1, (
            f"prompts of {LENGTHS} tokens got vectors of {sorted(sizes)} numbers; expected one size"
        )

    def test_chunks_change_no_bit(self) -> None:
        for length in LENGTHS:
            hidden = _hidden(length, self.size)
            whole = self._pooled(self.make(), hidden)
            for chunk in (1, 7, BLOCK, 100):
                found = self._pooled(self.make(), hidden, chunk)
                assert torch.equal(found, whole), f"chunks of {chunk} of {length} tokens changed the vector"

    def test_prompts_do_not_mix(self) -> None:
        """One object serves all requests, in turns."""
        one, other = _hidden(150, self.size), _hidden(90, self.size, seed=1)
        expected = self._pooled(self.make(), one), self._pooled(self.make(), other)
        made = self.make()
        states = [_begun(made, one), _begun(made, other)]
        for start in range(0, 150, 10):
            for state, hidden in zip(states, (one, other), strict=True):
                _read(made, state, hidden, start, start + 10)
        for state, vectors in zip(states, expected, strict=True):
            found = made.vectors(state.state, state.length)
            assert torch.equal(found, vectors), "a prompt's vector changed because of another prompt"

    def test_hidden_states_are_neither_kept_nor_changed(self) -> None:
        """The memory that they lie in belongs to the next step."""
        made, hidden = self.make(), _hidden(2 * BLOCK, self.size)
        expected, memory = self._pooled(self.make(), hidden), hidden.clone()
        state = _begun(made, memory)
        _read(made, state, memory, 0, len(memory))
        assert torch.equal(memory, hidden), "`fold` changed the hidden states"
        memory.fill_(7.0)
        found = made.vectors(state.state, state.length)
        assert torch.equal(found, expected), "the vector changed with memory that belongs to a later step"

    # -------------------------------------------------------------- details

    def _pooled(self, made: Pooling, hidden: Tensor, chunk: int = 10**9) -> Tensor:
        state = _begun(made, hidden)
        for start in range(0, len(hidden), chunk):
            _read(made, state, hidden, start, start + chunk)
        return made.vectors(state.state, state.length)


def _begun(made: Pooling, hidden: Tensor) -> PromptPooling:
    return PromptPooling(PoolingParams(), made, len(hidden))


def _read(made: Pooling, state: PromptPooling, hidden: Tensor, start: int, end: int) -> None:
    wanted = state.wanted(start, min(end, len(hidden)))
    fold(made, state, hidden[wanted.start : wanted.stop])


def _hidden(length: int, size: int, seed: int = 0) -> Tensor:
    return torch.randn(length, size, generator=torch.Generator().manual_seed(seed + length))


def _shape(vectors: Tensor, expected: str) -> str:
    return f"the vectors have the shape {list(vectors.shape)}; expected {expected}"
