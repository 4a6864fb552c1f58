"""Embeddings and scores of texts in this process, for `LLM`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, repeat

import numpy as np
import numpy.typing as npt

from turnout.core.engine.engine import Engine
from turnout.core.errors import EngineError, RequestError
from turnout.core.turns import Turns
from turnout.core.types.messages import Ready
from turnout.core.types.pooling import PoolingFacts, PoolingParams, Similarity
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.text.prompt.named_prompt import prompt_named
from turnout.text.prompt.pooling_tokens import TextTokens, pair_tokens, text_tokens
from turnout.text.tokenizer import Tokenizer

__all__ = ["OfflinePooling"]

Vector = npt.NDArray[np.float32]
Text = str | Sequence[int] | tuple[str, str]

FEW = 8
"""Texts, up to which it takes longer to hire threads than to tokenize."""

_KINDS: dict[Similarity, Callable[[Vector, Vector], float]] = {
    "cosine": lambda one, two: float(one @ two / (np.linalg.norm(one) * np.linalg.norm(two))),
    "dot": lambda one, two: float(one @ two),
    "euclidean": lambda one, two: -float(np.linalg.norm(one - two)),
    "manhattan": lambda one, two: -float(np.abs(one - two).sum()),
}


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

    def pooled(self, texts: Sequence[Text], params: PoolingParams, before: str = "") -> list[Vector]:
        """Returns what the texts become, in their order. Raises RequestError before anything runs."""
        specs = list(self._specs(texts, params, before))
        return self.turns.take(lambda: self._served(specs))

    def _served(self, specs: Sequence[RequestSpec]) -> list[Vector]:
        from turnout.kernels.threads import give_back_threads

        found: dict[str, Vector] = {}
        try:
            for spec in specs:
                self.engine.add(spec)
            while len(found) < len(specs):
                if not self.engine.busy:
                    raise EngineError("the engine ended a text without an answer, as after Engine.abort")
                for delta in self.engine.step():
                    if delta.error:
                        raise EngineError(delta.error)
                    if delta.pooled is not None:
                        data = np.frombuffer(delta.pooled.data, "<f4")
                        found[delta.request_id] = data.reshape(delta.pooled.shape)
        finally:
            for spec in specs:
                self.engine.abort(spec.id)
            give_back_threads()
        return [found[spec.id] for spec in specs]

    def scores(self, pairs: Sequence[tuple[str, str]], prompt_name: str | None = None) -> list[float]:
        """Returns the score of each pair, by the model's head, or else by the similarity of embeddings.

        prompt_name: of the instruction that the head is given, or of what is put in front of first texts that
        are embedded; None: the model's default, if it has one.
        """
        facts = self.facts
        if facts.labels:
            if len(facts.labels) > 1:
                raise RequestError("the model's head gives several scores; a pair needs one", "model")
            params = PoolingParams(task="classify")
            return [float(each[0]) for each in self.pooled(pairs, params, self.before(prompt_name))]
        if not facts.embedder:
            raise RequestError("the model has no classification head, and is no embedder", "model")
        params, before = PoolingParams(), prompt_named(facts, prompt_name, "query")
        one = self.pooled([first for first, _ in pairs], params, before)
        two = self.pooled([second for _, second in pairs], params, prompt_named(facts, None, "document"))
        return [_KINDS[facts.similarity](a, b) for a, b in zip(one, two, strict=True)]

    def before(self, name: str | None) -> str:
        """Returns what is put in front of texts. Raises RequestError for a name that the model has not."""
        return prompt_named(self.facts, name)

    def _specs(self, texts: Sequence[Text], params: PoolingParams, before: str) -> Iterator[RequestSpec]:
        for number, tokens in zip(count(), self._tokenized(texts, before)):
            pooling = PoolingParams(
                task=params.task,
                pooling=params.pooling,
                normalize=params.normalize,
                dimensions=params.dimensions,
                activation=params.activation,
                second_text=tokens.second_text,
            )
            sampling = SamplingParams(max_tokens=1)
            yield RequestSpec(
                id=f"pooled-{number}", prompt=tokens.ids, params=sampling, seed=0, pooling=pooling
            )

    def _tokenized(self, texts: Sequence[Text], before: str) -> Iterable[TextTokens]:
        """Returns the tokens of each, which the cores share out: a tokenizer lets other threads run."""
        from turnout.kernels.threads import kernel_threads

        if len(texts) < FEW or kernel_threads() == 1:
            return [self._tokens(text, before) for text in texts]
        with ThreadPoolExecutor(kernel_threads()) as pool:
            return list(pool.map(self._tokens, texts, repeat(before)))

    def _tokens(self, text: Text, before: str) -> TextTokens:
        limit = min(self.ready.max_model_len, self.facts.max_length or self.ready.max_model_len)
        lower = str.lower if self.facts.lower_case else str
        if isinstance(text, str):
            return text_tokens(self.tokenizer, lower(before + text), limit=limit)
        if isinstance(text, tuple) and len(text) == 2 and isinstance(text[0], str):
            first, second = (lower(str(each)) for each in text)
            template = self.facts.pair
            return pair_tokens(
                self.tokenizer, first, second, limit=limit, template=template, instruction=before
            )
        return TextTokens([int(token) for token in text])
