"""What every logits processor must keep to."""

from __future__ import annotations

import gc
import json
import random
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from turnout.core.engine.logits_processing import Processors
from turnout.core.interfaces.logits_processor import LogitsProcessor, Row, ServedModel
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.testing.suites.suite import Suite, shown, skip, slow
from turnout.testing.toy.decodings import ToyParallel

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LogitsProcessorSuite"]

CATALOGUE = (
    SamplingParams(),
    SamplingParams(temperature=0),
    SamplingParams(presence_penalty=0.7, frequency_penalty=0.3),
    SamplingParams(repetition_penalty=1.3),
    SamplingParams(logit_bias={7: 4.0, 9: -3.0}),
    SamplingParams(min_tokens=4),
    SamplingParams(bad_words_token_ids=((11,), (12, 13))),
    SamplingParams(allowed_token_ids=(5, 6, 7, 8)),
    SamplingParams(structured_outputs=StructuredOutputs(choice=("yes", "no", "perhaps not"))),
    SamplingParams(stop_token_ids=(3, 4), ignore_eos=True),
)
"""Of the usual parameters those that a processor wants are tried."""


class LogitsProcessorSuite(Suite[LogitsProcessor]):
    """What is done to a row depends on its tokens alone, however they came about."""

    kind = "logits_processor"
    trials: ClassVar[int] = 6
    """Outputs to follow."""
    length: ClassVar[int] = 6
    """Tokens of each."""

    params: ClassVar[Sequence[SamplingParams]] = CATALOGUE
    """To try, of those that it wants; say which it wants if none of the usual ones are."""

    # -------------------------------------------------------------- tests

    def test_it_wants_something(self) -> None:
        for params in self.params:
            wants = self.make().wants(params)
            assert isinstance(wants, bool), f"wants said {wants!r} of {shown(params)}"
        assert self._wanted(), "it wants none of the usual parameters; say which it does in `params`"

    def test_a_row_depends_on_itself_alone(self) -> None:
        """All rows at once, and one by one."""
        import torch

        processor = self._started()
        rows = [row for row, _ in self._grown(processor)]
        raw = self._logits(len(rows))
        together = _applied(processor, raw, rows)
        alone = torch.cat([_applied(processor, raw[i : i + 1], rows[i : i + 1]) for i in range(len(rows))])
        for row, one, other in zip(rows, together, alone, strict=True):
            assert one.equal(other), (
                f"{shown(row.params)} after {row.last(9)}: other logits in a batch than alone"
            )

    def test_guesses_count_as_tokens(self) -> None:
        """A row behind drafted tokens is as one behind accepted ones, or speculation would change answers."""
        processor = self._started()
        for row, output in self._grown(processor):
            for count in range(1, len(output) + 1):
                drafted = self._row(processor, row.params, output[:-count], tuple(output[-count:]))
                raw = self._logits(1)
                found, wanted = (_applied(processor, raw, [each]) for each in (drafted, row))
                assert found.equal(wanted), (
                    f"{shown(row.params)}: {output} with the last {count} drafted differs"
                )

    def test_what_was_preempted_goes_on_as_before(self) -> None:
        """Nothing but the tokens counts: another processor that never saw the start does the same."""
        processor, other = self._started(), self._started()
        for row, output in self._grown(processor):
            raw, again = self._logits(1), self._row(other, row.params, output)
            same = _applied(processor, raw, [row]).equal(_applied(other, raw, [again]))
            assert same, f"{shown(row.params)} after {output}: depends on more than the tokens"

    def test_masks_only_forbid(self) -> None:
        processor = self._started()
        if not processor.masks:
            skip("it is no mask (`masks`)")
        for row, output in self._grown(processor):
            raw = self._logits(1)
            after = _applied(processor, raw, [row])
            changed = after != raw
            lowest = after[changed]
            assert (lowest <= -1e30).all(), f"after {output} a mask changed logits to {lowest.tolist()[:3]}"
            assert not changed.all() or (after > float("-inf")).any(), f"after {output} nothing is left"

    def test_what_is_forbidden_already_stays_so(self) -> None:
        """Another processor may have come before: minus infinity in, no NaN and no number out."""
        processor = self._started()
        rows = [row for row, _ in self._grown(processor)]
        raw = self._logits(len(rows))
        raw[:, ::3] = float("-inf")
        after = _applied(processor, raw, rows)
        assert not after.isnan().any(), "minus infinity became NaN"
        assert not (after == float("inf")).any(), "logits became infinite"
        if processor.masks:
            forbidden = after[:, ::3]
            assert (forbidden <= -1e30).all(), "a mask allowed again what was forbidden"

    def test_nothing_is_kept_of_what_has_ended(self) -> None:
        processor = self._started()
        rows = [row for row, _ in self._grown(processor)]
        _applied(processor, self._logits(len(rows)), rows)
        ended = [weakref.ref(row.sequence) for row in rows]
        del rows
        gc.collect()
        kept = sum(reference() is not None for reference in ended)
        assert not kept, f"still refers to {kept} sequences: keep notes in a WeakKeyDictionary"

    @slow
    def test_answers_of_a_real_model_do_not_depend_on_what_else_is_served(self) -> None:
        """Alone, together, and where memory is so short that requests are preempted; with guesses, too."""
        embedded = self.embedded()
        for params in self._wanted():
            found = embedded.unmoved(params)
            guessing = embedded.tokens(params, spec_ngram=True, spec_tokens=3)
            assert found == guessing, f"{shown(params)}: other tokens where guesses are verified"

    # -------------------------------------------------------------- details

    def model(self) -> ServedModel:
        """What it is started with: by default the embedded model's tokenizer and vocabulary."""
        return _embedded()

    def _wanted(self) -> list[SamplingParams]:
        processor = self.make()
        return [params for params in self.params if processor.wants(params)]

    def _started(self) -> LogitsProcessor:
        processor = self.make()
        processor.start(self.model())
        return processor

    def _logits(self, rows: int) -> Tensor:
        import torch

        generator = torch.Generator().manual_seed(rows)
        return 3 * torch.randn(rows, self.model().vocab_size, generator=generator)

    def _row(
        self,
        processor: LogitsProcessor,
        params: SamplingParams,
        output: Sequence[int],
        guesses: tuple[int, ...] = (),
    ) -> Row:
        spec = RequestSpec(id="r", prompt=[1, 2, 3, 3], params=params, seed=0)
        stops = self.model().eos_token_ids | frozenset(params.stop_token_ids)
        request = Request(spec, ToyParallel(), 0.0, 100, stops)
        request.processors = Processors([("it", processor)]).wanted(request)
        request.live[0].tokens += output
        return Row(request.live[0], 0, guesses)

    def _grown(self, processor: LogitsProcessor) -> Iterator[tuple[Row, list[int]]]:
        """Rows behind outputs that the processor itself let through, token by token; with the output."""
        if not self._wanted():
            skip("it wants none of the usual parameters; say which it does in `params`")
        for params in self._wanted():
            for trial in range(self.trials):
                rng, output = random.Random(trial), list[int]()
                for _ in range(self.length):
                    row = self._row(processor, params, output)
                    yield row, list(output)
                    token = self._next(processor, row, rng)
                    if token in self.model().eos_token_ids:
                        break
                    output.append(token)

    def _next(self, processor: LogitsProcessor, row: Row, rng: random.Random) -> int:
        """One of the likeliest tokens that are left."""
        values, tokens = _applied(processor, self._logits(1), [row])[0].topk(3)
        left: list[int] = tokens[values > -1e30].tolist()
        return rng.choice(left) if left else int(tokens[0])


def _applied(processor: LogitsProcessor, raw: Tensor, rows: Sequence[Row]) -> Tensor:
    changed = raw.clone()
    processor.apply(changed, rows)
    for row in rows:
        assert row.request.fault is None, f"{shown(row.params)} after {row.last(9)}: {row.request.fault}"
    return changed


@cache
def _embedded() -> ServedModel:
    from turnout.models.hub.resolve import resolve_model

    folder = resolve_model("turnout-tiny")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ends = config.get("eos_token_id", [])
    ends = ends if isinstance(ends, list) else [ends]
    return ServedModel(folder, config["vocab_size"], frozenset(ends))
