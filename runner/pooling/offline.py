"""Embeddings and scores of texts in this process, for `LLM`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.errors import EngineError, RequestError
from turnout.core.turns import Turns
from turnout.core.types.messages import Ready
from turnout.core.types.pooling import PoolingFacts, PoolingParams
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.pooling.similarity import Vector, similarity, vector_of
from turnout.text.prompt.named_prompt import prompt_named
from turnout.text.prompt.pooling_tokens import (
    Cut,
    TextTokens,
    advising,
    kept_tokens,
    named_text,
    pair_tokens,
    shortened,
    text_tokens,
)
from turnout.text.prompt.truncation import FIELD
from turnout.text.tokenizer import Tokenizer

__all__ = ["OfflinePooling"]

Text = str | Sequence[int] | tuple[str, str]

FEW = 8
"""Texts, up to which it takes longer to hire threads than to tokenize."""


@dataclass
class OfflinePooling:
    """Pools texts by an engine that serves nobody else meanwhile."""

    engine: Engine
    ready: Ready
    tokenizer: Tokenizer
    turns: Turns
    """Whose turn it is to use the engine."""

    @property
    def facts(self) -> PoolingFacts:
        if self.ready.pooling is None:
            raise RequestError("this model gives neither embeddings nor scores", "model")
        return self.ready.pooling

    def pooled(
        self,
        texts: Sequence[Text],
        params: PoolingParams,
        before: str = "",
        truncate: int | None = None,
        called: str = "text",
    ) -> list[Vector]:
        """Returns what the texts become, in their order. Raises RequestError before anything runs.

        truncate: as ``truncate_prompt_tokens`` has it; called: what errors call a text, with its number.
        """
        named = [f"{called} {number}" if len(texts) > 1 else f"the {called}" for number in range(len(texts))]
        specs = list(self._specs(texts, params, before, truncate, named))
        return self.turns.take(lambda: self._served(specs, named))

    def _served(self, specs: Sequence[RequestSpec], named: Sequence[str]) -> list[Vector]:
        from turnout.kernels.threads import give_back_threads

        found: dict[str, Vector] = {}
        try:
            for spec, name in zip(specs, named, strict=True):
                with named_text(name):
                    self.engine.add(spec)
            while len(found) < len(specs):
                if not self.engine.busy:
                    raise EngineError("the engine ended a text without an answer, as after Engine.abort")
                for delta in self.engine.step():
                    if delta.error:
                        raise EngineError(delta.error)
                    if delta.pooled is not None:
                        found[delta.request_id] = vector_of(delta.pooled)
        finally:
            for spec in specs:
                self.engine.abort(spec.id)
            give_back_threads()
        return [found[spec.id] for spec in specs]

    def scores(
        self,
        pairs: Sequence[tuple[str, str]],
        prompt_name: str | None = None,
        truncate: int | None = None,
    ) -> list[float]:
        """Returns the score of each pair, by the model's head, or else by the similarity of embeddings.

        prompt_name: of the instruction that the head is given, or of what is put in front of first texts that
        are embedded; None: the model's default, if it has one.
        """
        facts = self.facts
        if facts.labels:
            if len(facts.labels) > 1:
                raise RequestError("the model's head gives several scores; a pair needs one", "model")
            params = PoolingParams(task="classify", pair=True)
            before = self.before(prompt_name)
            return [float(each[0]) for each in self.pooled(pairs, params, before, truncate, "pair")]
        if not facts.embedder:
            raise RequestError("the model has no classification head, and is no embedder", "model")
        params, before = PoolingParams(), prompt_named(facts, prompt_name, "query")
        one = self.pooled([first for first, _ in pairs], params, before, truncate, "query")
        before = prompt_named(facts, None, "document")
        two = self.pooled([second for _, second in pairs], params, before, truncate)
        return [similarity(facts.similarity, a, b) for a, b in zip(one, two, strict=True)]

    def before(self, name: str | None) -> str:
        """Returns what is put in front of texts. Raises RequestError for a name that the model has not."""
        return prompt_named(self.facts, name)

    def _specs(
        self,
        texts: Sequence[Text],
        params: PoolingParams,
        before: str,
        truncate: int | None,
        named: Sequence[str],
    ) -> Iterator[RequestSpec]:
        for number, tokens in enumerate(self._tokenized(texts, before, truncate, named)):
            pooling = msgspec.structs.replace(params, second_text=tokens.second_text)
            sampling = SamplingParams(max_tokens=1)
            yield RequestSpec(
                id=f"pooled-{number}", prompt=tokens.ids, params=sampling, seed=0, pooling=pooling
            )

    def _tokenized(
        self, texts: Sequence[Text], before: str, truncate: int | None, named: Sequence[str]
    ) -> Iterable[TextTokens]:
        """Returns the tokens of each, which the cores share out: a tokenizer lets other threads run."""
        from turnout.kernels.threads import kernel_threads

        limit = min(self.ready.max_model_len, self.facts.max_length or self.ready.max_model_len)
        keep = kept_tokens(truncate, limit)
        cut = None if keep is None else Cut(keep, self.tokenizer.truncation_side)
        tokens = partial(self._tokens, before=before, limit=limit, cut=cut)
        if len(texts) < FEW or kernel_threads() == 1:
            return list(map(tokens, texts, named))
        with ThreadPoolExecutor(kernel_threads()) as pool:
            return list(pool.map(tokens, texts, named))

    def _tokens(self, text: Text, name: str, *, before: str, limit: int, cut: Cut | None) -> TextTokens:
        """name: what errors about the text call it."""
        with named_text(name), advising(FIELD):
            return self._read(text, before, limit, cut)

    def _read(self, text: Text, before: str, limit: int, cut: Cut | None) -> TextTokens:
        lower = str.lower if self.facts.lower_case else str
        if isinstance(text, str):
            return text_tokens(self.tokenizer, lower(before + text), limit=limit, cut=cut)
        if isinstance(text, tuple) and len(text) == 2 and isinstance(text[0], str):
            first, second = (lower(str(each)) for each in text)
            template = self.facts.pair
            return pair_tokens(
                self.tokenizer, first, second, limit=limit, cut=cut, template=template, instruction=before
            )
        ids = [int(token) for token in text]
        return TextTokens(ids if cut is None else shortened(ids, cut.keep, cut.side))
