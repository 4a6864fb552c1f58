"""The grid that a profile goes over: how many sequences, with how much context, and what comes beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["DECODES", "FEW_SEQUENCES", "PROMPTS", "Scene", "scenes"]

DECODES = 5
"""Steps in which all of a scene's sequences decode, and as many with prompts among them, and with others
waiting. At most as many compute its context."""
SETTLING = 2
"""Steps in which all decode, not measured, before such steps and before each in which prompts come. Behind a
step that computed a long prompt, or nothing, small steps of a small model take up to twice as long, since
weights and context are in no cache; most steps of a server follow others like them."""
FEW_SEQUENCES = 21
"""So many, or fewer, make a small step."""
PROMPTS = ((1 / 64,), (1 / 12,), (3 / 8,), (1.0,), (1 / 5,) * 5)
"""Prompts that come in such steps as well, in shares of the tokens that a step computes at most."""


@dataclass(frozen=True)
class Scene:
    """A point of the grid."""

    batch: int
    """Sequences."""
    context: int
    """Tokens that each one begins with."""
    prompts: tuple[tuple[int, ...], ...]
    """Tokens of those that come while they decode, by the step that they come in."""
    output: int
    """Tokens that each may produce: more than there are steps."""
    spread: bool = False
    """Their contexts are from this long down to an eighth of it, not all alike."""
    settling: int = 0
    """Steps in which all decode, not measured, before those that are."""

    @property
    def lengths(self) -> list[int]:
        """Of their contexts."""
        shares = (1.0, 0.5, 0.75, 0.25, 0.125) if self.spread else (1.0,)
        return [max(1, int(self.context * shares[i % len(shares)])) for i in range(self.batch)]

    @property
    def tokens(self) -> int:
        """Positions that it takes at most."""
        return self.batch * (self.context + self.output) + max(map(sum, self.prompts))

    def settled(self) -> Scene:
        return replace(self, settling=SETTLING)

    def small_steps(self, decodes: int) -> int:
        """Steps, measured or not, after those that compute its context, in `decodes` of each kind."""
        return 3 * decodes + (2 + decodes) * self.settling

    def with_prompts(self, steps: int, room: int) -> Scene:
        """With those of its first `steps` steps' prompts that take no more than so many tokens together."""
        taken = list[tuple[int, ...]]()
        for lengths in self.prompts[:steps]:
            if sum(lengths) <= room:
                taken.append(lengths)
                room -= sum(lengths)
        return replace(self, prompts=tuple(taken))


def scenes(most_sequences: int, most_tokens: int, longest: int, pool: int) -> list[Scene]:
    """The grid, small ones first. `most_tokens`: of a step; `longest`: a request; `pool`: KV positions."""
    # Not powers of two: kernels are at their best with those, and batches that come up are others.
    batches = [size for size in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233) if size < most_sequences]
    contexts = (4, 16, 64, 192, 448, 960, 1984, 4032)
    prompts = [
        tuple(max(1, min(int(share * most_tokens), longest - 1)) for share in shares) for shares in PROMPTS
    ]
    grid = [
        Scene(batch, context, _turned(prompts, i + j), _output(batch, context, most_tokens), spread)
        for i, batch in enumerate(batches)
        for j, context in enumerate(contexts)
        for spread in (False, True)[:batch]
    ]
    possible = [
        scene for scene in grid if scene.context + scene.output <= longest and scene.tokens <= 0.8 * pool
    ]
    return sorted(possible, key=lambda scene: scene.tokens)


def _turned(prompts: Sequence[tuple[int, ...]], by: int) -> tuple[tuple[int, ...], ...]:
    """Others come first, for scenes that have no time for all."""
    by %= len(prompts)
    return (*prompts[by:], *prompts[:by])


def _output(batch: int, context: int, most_tokens: int) -> int:
    """More than there are steps: those that compute the prompts, and those after them."""
    return 4 * DECODES + (2 + len(PROMPTS)) * SETTLING + batch * context // most_tokens
