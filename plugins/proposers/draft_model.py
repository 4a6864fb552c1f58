"""A smaller model that drafts the tokens of the served model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.proposer import DraftRequest, Proposal, Proposer
from turnout.core.interfaces.resources import Resources
from turnout.core.sizes import ByteSize
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.proposers.draft_memory import DraftMemory

__all__ = ["DraftModel"]


class DraftModel(Proposer):
    """Runs a smaller model with the same vocabulary, for all sequences at once.

    The draft model has a KV memory of its own. A sequence that finds no room in it, or that is longer than
    the draft's context, is decoded without drafts. Draft tokens are drawn as the request draws its tokens,
    with the same logits processors, temperature and noise.
    """

    def __init__(
        self,
        model: Annotated[str, Field(description="Folder, hub name or short name of the draft.")],
        memory: Annotated[
            ByteSize | None, Field(description="Size of its KV pool; null: as many tokens as the model's.")
        ] = None,
        quantization: Annotated[
            str, Field(description="Quantizer of its own, as `NAME` or `NAME:option=value,…`.")
        ] = "none",
    ) -> None:
        self._model = model
        self._bytes = memory
        self._quantization = quantization
        self._cost = 0.0

    def start(self, resources: Resources) -> None:
        """Loads the draft model. Raises ConfigError if it does not have the served model's vocabulary."""
        from turnout.models.hub.resolve import resolve_model
        from turnout.plugins.proposers.drafter import Drafter
        from turnout.text.vocabulary import vocabulary_difference

        difference = vocabulary_difference(resources.model.folder, resolve_model(self._model))
        if difference is not None:
            raise ConfigError(
                f"the draft model {self._model} does not have the served model's vocabulary: {difference}; "
                "choose a draft with the same tokenizer"
            )
        companion = resources.companion(self._model, memory=self._bytes, quantization=self._quantization)
        # By arithmetic, a lower bound: a draft that is expected to be slow would never be tried.
        self._cost = _operations(companion.spec) / _operations(resources.spec)
        self._memory = DraftMemory(companion.kv, companion.spec.max_positions)
        self._drafter = Drafter(
            companion.runner,
            self._memory,
            companion.spec.vocab_size,
            resources.model.vocab_size,
            resources.max_batched_tokens,
        )

    @property
    def cost(self) -> float:
        return self._cost

    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        return self._drafter.propose(requests)

    def backlog(self, sequence: TokenSequence) -> int:
        return self._memory.backlog(sequence)

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        self._memory.forget(sequences)


def _operations(spec: ModelSpec) -> int:
    """Multiplications for each token, without attention."""
    heads = (2 * spec.heads + 2 * spec.kv_heads) * spec.head_dim
    layer = spec.hidden_size * (heads + 3 * spec.intermediate_size)
    return spec.layers * layer + spec.hidden_size * spec.vocab_size
