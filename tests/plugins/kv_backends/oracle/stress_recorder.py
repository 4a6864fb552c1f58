"""What happened in a run, and the runner that watches what is computed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields, replace

import torch
from brute_force import Context, Rows, tiny_model
from fault import Fault

from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.types.plan import Chunk, Logits, Plan
from turnout.runner.execution.model_runner import ModelRunner
from turnout.testing.toy.runner import resolve_tokens

__all__ = ["Recorder", "Tally"]


@dataclass
class Tally:
    """What happened in a run."""

    steps: int = 0
    preemptions: int = 0
    swap_outs: int = 0
    copies: int = 0
    swap_ins: int = 0
    hits: int = 0
    """Tokens of prompts that needed no compute."""
    recomputed: int = 0
    """Positions of a sequence computed more than once, drafts aside."""
    rows: int = 0
    """Logits rows compared."""
    positions: int = 0
    """Of which keys and values were compared."""
    scores: int = 0
    """Of prompt tokens, compared."""
    unknown: int = 0
    """Tokens that were computed before they were known."""
    complaints: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """What was wrong, by the kind of check that found it."""

    def counts(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "complaints"}

    def complain(self, check: str, message: str) -> None:
        self.complaints[check].append(message)


class Recorder(ModelRunner):
    """Runs plans, and remembers what was computed and what came out."""

    def __init__(self, attention: AttentionBackend, fault: Fault, tally: Tally) -> None:
        super().__init__(tiny_model(), attention, torch.device("cpu"))
        self._fault = fault
        self._tally = tally
        self.rows: list[tuple[Context, Rows]] = []
        """Contexts and, [rows, VOCABULARY], the logits that their last tokens gave."""
        self.known: dict[str, dict[Context, None]] = defaultdict(dict)
        """Everything computed so far, by salt: each context with all that it starts with."""
        self._computed: set[tuple[int, int]] = set()

    def run(self, plan: Plan) -> Logits:
        self._tally.copies += sum(move.way == "copy" for move in plan.moves)
        self._tally.swap_ins += sum(move.way == "swap_in" for move in plan.moves)
        for chunk in plan.chunks:
            self._tally.unknown += min(chunk.tokens) < 0
            self._check(chunk, _context(chunk, plan))
        logits = super().run(replace(plan, moves=self._fault.carried_out(plan.moves)))
        for chunk in plan.chunks:
            self._record(chunk, _context(chunk, plan), logits)
        return logits

    def _check(self, chunk: Chunk, context: Context) -> None:
        """No sequence skips what was never computed, or was computed under another salt alone."""
        own = [*chunk.sequence.tokens, *chunk.sequence.draft]
        assert chunk.tokens and chunk.tokens == own[chunk.start : chunk.end], chunk
        if chunk.start and context[: chunk.start] not in self.known[_salt(chunk)]:
            self._tally.complain(
                "hits", f"no sequence computed {context[: chunk.start]} for {chunk.sequence.request}"
            )

    def _record(self, chunk: Chunk, context: Context, logits: Logits) -> None:
        sequence = chunk.sequence
        ends = range(chunk.start, chunk.end)
        self.known[_salt(chunk)].update((context[: end + 1], None) for end in ends)
        if chunk.rows:
            rows = logits.rows[sequence]
            self.rows.append((context, logits.values[rows.start : rows.stop].numpy()))
        final = {(sequence.id, place) for place in ends if place < len(sequence.tokens)}
        self._tally.recomputed += len(final & self._computed)
        self._computed |= final


def _context(chunk: Chunk, plan: Plan) -> Context:
    """What is computed, with all that it comes after."""
    return tuple(resolve_tokens([*chunk.sequence.tokens, *chunk.sequence.draft][: chunk.end], plan))


def _salt(chunk: Chunk) -> str:
    return chunk.sequence.request.spec.cache_salt
