"""Which causal model an architecture has the layers of, by its name."""

from __future__ import annotations

from typing import NamedTuple

from turnout.core.errors import ModelError

__all__ = ["BodyName", "body_named", "may_encode", "refuse_encoder", "refuse_other_tasks"]

SCORES, BARE = "ForSequenceClassification", "Model"
CAUSAL = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}
"""Causal models that are not called after their bodies."""
OTHERS = {
    "ForTokenClassification": "labels each token",
    "ForQuestionAnswering": "marks the answer in a text",
    "ForMultipleChoice": "chooses among several texts",
    "ForNextSentencePrediction": "says which text follows another",
}
"""What other heads do, which no endpoint asks for."""


ENCODERS = {
    "MPNet": "its scores have a bias by relative position",
    "Deberta": "its scores are by relative positions",
    "XLNet": "it has attention code of its own",
    "T5": "it has an encoder and a decoder",
}
"""Why encoders are refused that neither a family nor the adapter runs, by how their names begin."""
SERVED = (
    "of encoders, BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, DistilBERT and ModernBERT are, and those "
    "that docs/reference/models.md lists"
)
TASKS = (SCORES, BARE, "ForMaskedLM", "ForPreTraining")
"""How the names of encoders end: with a classification head, without one, or with one that is left out."""


class BodyName(NamedTuple):
    """What the name of an architecture without a language head says."""

    causal: str
    """The architecture that has the same layers, and a language head."""
    scores: bool
    """Whether there is a classification head instead."""


def body_named(architecture: str) -> BodyName | None:
    """Returns what the name says; None: it is no body's."""
    for suffix, scores in ((SCORES, True), (BARE, False)):
        stem = architecture.removesuffix(suffix)
        if stem and stem != architecture:
            return BodyName(CAUSAL.get(stem, f"{stem}ForCausalLM"), scores)
    return None


def may_encode(architecture: str) -> bool:
    """Says whether an encoder may be called so."""
    return architecture.endswith(TASKS)


def refuse_encoder(architecture: str) -> None:
    """Raises ModelError for an encoder that nothing runs, with the reason."""
    stem = next((stem for stem in ENCODERS if architecture.startswith(stem)), None)
    if stem is not None and may_encode(architecture):
        raise ModelError(f"config.json: {architecture} is not served: {ENCODERS[stem]}; {SERVED}")


def refuse_other_tasks(architecture: str) -> None:
    """Raises ModelError for heads that nothing is served of."""
    for suffix, does in OTHERS.items():
        if architecture.endswith(suffix):
            raise ModelError(
                f"config.json: {architecture} {does}, which is not served; take a checkpoint that embeds "
                "(…Model), classifies whole texts (…ForSequenceClassification) or generates (…ForCausalLM)"
            )
