"""The conformance suite of logits processors."""

from __future__ import annotations

import gc
import json
import random
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.interfaces.logits_processor import LogitsProcessor, Row, ServedModel
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.testing.checks.messages import shown
from turnout.testing.suites.suite import Suite, not_for_it, skip, slow
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
"""Usual sampling parameters; those that a processor wants are tried."""


class LogitsProcessorSuite(Suite[LogitsProcessor]):
    """How a row is changed depends only on its tokens, however they came about."""

    kind = "logits_processor"
    trials: ClassVar[int] = 6
    """Outputs that are followed, token by token."""
    length: ClassVar[int] = 6
    """Tokens of each output."""

    params: ClassVar[Sequence[SamplingParams]] = CATALOGUE
    """Sampling parameters; those that the processor wants are tried."""

    # -------------------------------------------------------------- tests

    def test_some_sampling_parameters_are_wanted(self) -> None:
        for params in self.params:
            wants = self.make().wants(params)
            assert isinstance(wants, bool), f"`wants` returned {wants!r}; expected a bool: {shown(params)}"
        assert self._wanted(), (
            "`wants` returned False for all parameters that were tried; set `params` to some that it wants"
        )

    def test_a_row_depends_on_itself_alone(self) -> None:
        """`apply` on all rows at once, and on each alone."""
        import torch

        processor = self._started()
        rows = [row for row, _ in self._grown(processor)]
        raw = self._logits(len(rows))
        together = _applied(processor, raw, rows)
        alone = torch.cat([_applied(processor, raw[i : i + 1], rows[i : i + 1]) for i in range(len(rows))])
        for row, one, other in zip(rows, together, alone, strict=True):
            assert one.equal(other), (
                f"`apply` gave a row other logits in a batch than alone; expected the same, after the tokens "
                f"{row.last(9)}: {shown(row.params)}"
            )

    def test_drafted_tokens_count_like_accepted_ones(self) -> None:
        """A row behind drafted tokens equals one behind accepted tokens, or speculation changes answers."""
        processor = self._started()
        for row, output in self._grown(processor):
            for count in range(1, len(output) + 1):
                drafted = self._row(processor, row.params, output[:-count], tuple(output[-count:]))
                raw = self._logits(1)
                found, wanted = (_applied(processor, raw, [each]) for each in (drafted, row))
                assert found.equal(wanted), (
                    f"`apply` gave a row other logits when the last {count} tokens of {output} were drafted "
                    f"than when they were accepted; read `row.last`, which has both: {shown(row.params)}"
                )

    def test_a_preempted_request_continues_as_before(self) -> None:
        """Only the tokens count: another instance that did not see the start gives the same logits."""
        processor, other = self._started(), self._started()
        for row, output in self._grown(processor):
            raw, again = self._logits(1), self._row(other, row.params, output)
            same = _applied(processor, raw, [row]).equal(_applied(other, raw, [again]))
            assert same, (
                f"`apply` gave other logits by an instance that did not see the start of {output}; they "
                f"must depend only on the row's tokens: {shown(row.params)}"
            )

    def test_rejected_drafts_leave_no_trace(self) -> None:
        """A sequence goes on by another token than the one drafted, behind which a row was changed, too."""
        processor, other = self._started(), self._started()
        for params in self._wanted():
            for trial in range(self.trials):
                sequence = self._row(processor, params, []).sequence
                for row, output in self._growing(other, params, trial):
                    sequence.tokens[len(sequence.request.prompt) :] = output
                    raw, rows = self._logits(2), [Row(sequence, 0)]
                    same = _applied(processor, raw[:1], rows).equal(_applied(other, raw[:1], [row]))
                    assert same, (
                        f"`apply` gave a row other logits after {output} because a draft was rejected; "
                        f"keep nothing of `draft_tokens`: {shown(params)}"
                    )
                    for token in self._likely(other, row):
                        if token not in self.model().eos_token_ids:
                            _applied(processor, raw, [*rows, Row(sequence, 0, (token,))])

    def test_choices_of_a_request_do_not_mix(self) -> None:
        """They have the request in common, and the sequence until they fork."""
        import torch

        processor, other = self._started(), self._started()
        for params in self._wanted():
            ways = [[output for _, output in self._growing(other, params, trial)] for trial in range(2)]
            sequence = self._row(processor, params, []).sequence
            choices = [sequence, sequence]
            for outputs in zip(*ways, strict=False):
                for choice, output in zip(choices, outputs, strict=True):
                    choice.tokens[len(sequence.request.prompt) :] = output
                raw, rows = self._logits(2), [Row(choice, index) for index, choice in enumerate(choices)]
                alone = [self._row(other, params, output) for output in outputs]
                wanted = torch.cat([_applied(other, raw[i : i + 1], [row]) for i, row in enumerate(alone)])
                assert _applied(processor, raw, rows).equal(wanted), (
                    f"`apply` gave the choices {outputs} of a request other logits than each as a request's "
                    f"only one; keep state by sequence, not by request: {shown(params)}"
                )
                if choices[1] is sequence:
                    choices[1] = sequence.fork()

    def test_masks_only_forbid_tokens(self) -> None:
        processor = self._started()
        if not processor.masks:
            not_for_it("the processor does not mask tokens (`masks`)")
        for row, output in self._grown(processor):
            raw = self._logits(1)
            after = _applied(processor, raw, [row])
            changed = after != raw
            lowest = after[changed]
            assert (lowest <= -1e30).all(), (
                f"`masks` is True, but `apply` changed logits to {lowest.tolist()[:3]}; expected -inf, "
                f"after {output}"
            )
            assert not changed.all() or (after > float("-inf")).any(), (
                f"`apply` forbade all tokens after {output}; it must leave at least one"
            )

    def test_forbidden_tokens_stay_forbidden(self) -> None:
        """Another processor may have run before: -inf must not become NaN, nor a number if this is a mask."""
        processor = self._started()
        rows = [row for row, _ in self._grown(processor)]
        raw = self._logits(len(rows))
        raw[:, ::3] = float("-inf")
        after = _applied(processor, raw, rows)
        assert not after.isnan().any(), "`apply` turned -inf into NaN; leave out what is -inf already"
        assert not (after == float("inf")).any(), "`apply` made logits +inf; expected finite numbers or -inf"
        if processor.masks:
            forbidden = after[:, ::3]
            assert (forbidden <= -1e30).all(), (
                "`masks` is True, but `apply` allowed tokens again that were -inf already"
            )

    def test_ended_sequences_are_forgotten(self) -> None:
        processor = self._started()
        rows = [row for row, _ in self._grown(processor)]
        _applied(processor, self._logits(len(rows)), rows)
        ended = [weakref.ref(row.sequence) for row in rows]
        del rows
        gc.collect()
        kept = sum(reference() is not None for reference in ended)
        assert not kept, (
            f"the processor still refers to {kept} sequences that have ended; keep state in a "
            "WeakKeyDictionary"
        )

    @slow
    def test_answers_of_a_real_model_do_not_depend_on_what_else_is_served(self) -> None:
        """Alone, together, where scarce memory causes preemptions, and with drafts."""
        embedded = self.embedded()
        for params in self._wanted():
            found = embedded.unmoved(params)
            drafted = embedded.tokens(params, spec_ngram=True, spec_tokens=3)
            assert found == drafted, (
                f"requests got other tokens with speculative decoding; expected the same: {shown(params)}"
            )

    # -------------------------------------------------------------- details

    def model(self) -> ServedModel:
        """What `start` gets: by default, the embedded model's tokenizer and vocabulary."""
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
        draft_tokens: tuple[int, ...] = (),
    ) -> Row:
        spec = RequestSpec(id="r", prompt=[1, 2, 3, 3], params=params, seed=0)
        stops = self.model().eos_token_ids | frozenset(params.stop_token_ids)
        request = Request(spec, ToyParallel(), 0.0, 100, stops)
        request.processors = LogitsProcessors([("it", processor)]).wanted(request)
        request.live[0].tokens += output
        return Row(request.live[0], 0, draft_tokens)

    def _grown(self, processor: LogitsProcessor) -> Iterator[tuple[Row, list[int]]]:
        """Rows, with their outputs, while each output grows by tokens that the processor allows."""
        if not self._wanted():
            skip(
                "`wants` returned False for all parameters that were tried; set `params` to some that it "
                "wants"
            )
        for params in self._wanted():
            for trial in range(self.trials):
                yield from self._growing(processor, params, trial)

    def _growing(
        self, processor: LogitsProcessor, params: SamplingParams, trial: int
    ) -> Iterator[tuple[Row, list[int]]]:
        rng, output = random.Random(trial), list[int]()
        for _ in range(self.length):
            row = self._row(processor, params, output)
            yield row, list(output)
            token = rng.choice(self._likely(processor, row))
            if token in self.model().eos_token_ids:
                break
            output.append(token)

    def _likely(self, processor: LogitsProcessor, row: Row) -> list[int]:
        """The most likely tokens of those that are allowed."""
        values, tokens = _applied(processor, self._logits(1), [row])[0].topk(3)
        left: list[int] = tokens[values > -1e30].tolist()
        return left or [int(tokens[0])]


def _applied(processor: LogitsProcessor, raw: Tensor, rows: Sequence[Row]) -> Tensor:
    changed = raw.clone()
    processor.apply(changed, rows)
    for row in rows:
        assert row.request.fault is None, (
            f"`apply` ended the request, after the tokens {row.last(9)}: {row.request.fault}; "
            f"{shown(row.params)}"
        )
    return changed


@cache
def _embedded() -> ServedModel:
    from turnout.models.hub.resolve import resolve_model

    folder = resolve_model("turnout-tiny")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ends = config.get("eos_token_id", [])
    ends = ends if isinstance(ends, list) else [ends]
    return ServedModel(folder, config["vocab_size"], frozenset(ends))
