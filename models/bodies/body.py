"""The family of decoders whose language head is missing, exchanged or read for two tokens alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from turnout.core.errors import ModelError
from turnout.core.interfaces.models import ModelFamily
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Renamed
from turnout.core.types.pooling import ScoreHead
from turnout.models.bodies.parts import ModuleParts
from turnout.models.config_reader import ConfigReader
from turnout.models.score_head import read_head

if TYPE_CHECKING:
    from torch import nn

__all__ = ["DecoderBody", "Head"]

Head = Literal["language", "scores", "none"]
"""What a body has: the head of its causal model, a linear layer over the last token, or nothing."""

SCORE = "score"
"""What transformers calls that layer, and where `ScoreHead` looks for it."""


@runtime_checkable
class _HasLanguageHead(Protocol):
    """A module whose language head can be taken away."""

    def drop_language_head(self) -> None: ...


class DecoderBody(ModelFamily):
    """Builds what the family of a causal model builds, of a checkpoint with another head.

    The names of tensors may begin as in the causal model's checkpoints, or where its body alone was saved.
    """

    architectures = ()

    def __init__(
        self, family: ModelFamily, causal: str, head: Head, score_tokens: Sequence[int] = ()
    ) -> None:
        """causal: the architecture that `family` builds; score_tokens: with a language head, the token whose
        logit is the score, and the one whose logit is subtracted, if there is one."""
        self._family, self._causal = family, causal
        self._head = head
        self._score_tokens = tuple(score_tokens)
        self._parts = ModuleParts()
        name_plugin(self, title_of(family, "model"))

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        inner = {**config, "architectures": [self._causal]}
        if self._head != "language":
            inner["tie_word_embeddings"] = True  # then the family builds no weights for the head
        spec = self._family.spec(inner)
        if config.get("is_causal") is False:
            spec = _two_sided(spec)
        head = spec.head
        if self._head == "scores":
            padding = ConfigReader(config).token_ids("pad_token_id")
            head = replace(
                read_head(ConfigReader(config), "last"),
                padding=padding[0] if padding and not spec.encoder else None,
            )
        elif self._score_tokens:
            self._check_tokens(spec)
            head = ScoreHead(("LABEL_0",), "last", "sigmoid")
        return replace(
            spec,
            architecture=config["architectures"][0],
            generates=self._head == "language" and not spec.encoder,
            head=head,
        )

    def build(self, spec: ModelSpec) -> nn.Module:
        # Imported here, because listing plugins must not import torch.
        from turnout.models.bodies.heads import score_layer, token_score

        module = self._family.build(spec)
        if self._head != "language":
            if not isinstance(module, _HasLanguageHead):
                raise ModelError(
                    f"{spec.architecture}: {title_of(self._family, 'model')} builds no such model, but only "
                    f"{self._causal}; its module has no drop_language_head"
                )
            module.drop_language_head()
        if self._head == "scores":
            assert spec.head is not None
            module.add_module(SCORE, score_layer(spec.hidden_size, len(spec.head.labels)))
        elif self._score_tokens:
            module.score = token_score(module, self._score_tokens)  # type: ignore[assignment]  # a function
        self._parts = ModuleParts(module)
        return module

    def parameter_count(self, spec: ModelSpec) -> int | None:
        count = self._family.parameter_count(spec)
        scores = spec.hidden_size * len(spec.head.labels) if self._head == "scores" and spec.head else 0
        return None if count is None else count + scores

    def rename(self, key: str) -> Renamed:
        if key == f"{SCORE}.weight":
            return key if self._head == "scores" else None
        if key.startswith("lm_head.") and self._head != "language":
            return None
        renamed = self._family.rename(key)
        if self._parts.have(renamed):
            return renamed
        prefixed = self._family.rename(f"model.{key}")
        return prefixed if self._parts.have(prefixed) else renamed

    def _check_tokens(self, spec: ModelSpec) -> None:
        for token in self._score_tokens:
            if not 0 <= token < spec.vocab_size:
                raise ModelError(
                    f"the score is read off token {token:,}, but {spec.architecture} has only "
                    f"{spec.vocab_size:,} tokens; correct the config of LogitScore"
                )


def _two_sided(spec: ModelSpec) -> ModelSpec:
    """Returns the spec of a decoder whose config says ``is_causal: false``, as transformers reads it.

    A window then reaches so many positions to either side, beside the token itself.
    """
    rules = tuple(
        replace(rule, causal=False, window=None if rule.window is None else rule.window + 1)
        for rule in spec.layer_attention()
    )
    return replace(spec, attention=rules, encoder=True)
