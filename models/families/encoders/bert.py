"""BERT, and what has its layers: RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, DistilBERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from turnout.models.config_reader import ConfigReader
from turnout.models.encoder.spec import EncoderSpec
from turnout.models.families.encoders.family import BertLikeFamily, encoder_spec, read_activation

__all__ = ["Bert", "DistilBert", "Electra", "Roberta"]

BERT_NAMES = {
    "embeddings.word_embeddings.": "embeddings.words.",
    "embeddings.position_embeddings.": "embeddings.positions.",
    "embeddings.token_type_embeddings.": "embeddings.types.",
    "embeddings.LayerNorm.": "embeddings.norm.",
    "encoder.layer.": "layers.",
    ".attention.self.query.": ".attention.q_proj.",
    ".attention.self.key.": ".attention.k_proj.",
    ".attention.self.value.": ".attention.v_proj.",
    ".attention.output.dense.": ".attention.o_proj.",
    ".attention.output.LayerNorm.": ".attention_norm.",
    ".intermediate.dense.": ".mlp.up_proj.",
    ".output.dense.": ".mlp.down_proj.",
    ".output.LayerNorm.": ".mlp_norm.",
}
"""In this order: those of attention come before what they end with."""


class Bert(BertLikeFamily):
    """Learned positions, token types, and a norm behind each residual."""

    architectures: ClassVar[tuple[str, ...]] = (
        "BertModel",
        "BertForMaskedLM",
        "BertForPreTraining",
        "BertForSequenceClassification",
    )
    checkpoints: ClassVar[tuple[str, ...]] = (
        "sentence-transformers/all-MiniLM-L6-v2",
        "BAAI/bge-small-en-v1.5",
        "cross-encoder/ms-marco-MiniLM-L6-v2",
    )
    prefix: ClassVar[str] = "bert."
    names: ClassVar[Mapping[str, str]] = BERT_NAMES
    head_names: ClassVar[Mapping[str, str]] = {"pooler.dense.": "dense.", "classifier.": "out."}

    def encoder_spec(self, architecture: str, reader: ConfigReader) -> EncoderSpec:
        _check_encoder(reader)
        return encoder_spec(
            architecture,
            reader,
            activation=read_activation(reader, "hidden_act"),
            types=reader.integer("type_vocab_size", 2),
        )


class Roberta(BertLikeFamily):
    """BERT whose positions begin behind the one of padding; it has one token type at most."""

    architectures: ClassVar[tuple[str, ...]] = tuple(
        f"{name}{task}"
        for name in ("Roberta", "XLMRoberta", "Camembert")
        for task in ("Model", "ForMaskedLM", "ForSequenceClassification")
    )
    checkpoints: ClassVar[tuple[str, ...]] = (
        "BAAI/bge-m3",
        "BAAI/bge-reranker-v2-m3",
        "intfloat/multilingual-e5-base",
    )
    prefix: ClassVar[str] = "roberta."
    names: ClassVar[Mapping[str, str]] = BERT_NAMES
    head_names: ClassVar[Mapping[str, str]] = {"classifier.dense.": "dense.", "classifier.out_proj.": "out."}

    def encoder_spec(self, architecture: str, reader: ConfigReader) -> EncoderSpec:
        _check_encoder(reader)
        return encoder_spec(
            architecture,
            reader,
            activation=read_activation(reader, "hidden_act"),
            types=reader.integer("type_vocab_size", 2),
            first_position=_padding(reader) + 1,
        )


class Electra(BertLikeFamily):
    """BERT whose embeddings may be narrower than its layers."""

    architectures: ClassVar[tuple[str, ...]] = (
        "ElectraModel",
        "ElectraForMaskedLM",
        "ElectraForPreTraining",
        "ElectraForSequenceClassification",
    )
    checkpoints: ClassVar[tuple[str, ...]] = ("cross-encoder/ms-marco-electra-base",)
    prefix: ClassVar[str] = "electra."
    names: ClassVar[Mapping[str, str]] = {"embeddings_project.": "embeddings.project.", **BERT_NAMES}
    head_names: ClassVar[Mapping[str, str]] = {"classifier.dense.": "dense.", "classifier.out_proj.": "out."}
    other_heads: ClassVar[tuple[str, ...]] = (
        "discriminator_predictions.",
        "generator_predictions.",
        "generator_lm_head.",
    )
    head_activation: ClassVar[str] = "gelu"

    def encoder_spec(self, architecture: str, reader: ConfigReader) -> EncoderSpec:
        _check_encoder(reader)
        return encoder_spec(
            architecture,
            reader,
            activation=read_activation(reader, "hidden_act"),
            types=reader.integer("type_vocab_size", 2),
            embedding_size=reader.integer("embedding_size", 128),
        )


class DistilBert(BertLikeFamily):
    """BERT without token types, in layers that are named otherwise."""

    architectures: ClassVar[tuple[str, ...]] = (
        "DistilBertModel",
        "DistilBertForMaskedLM",
        "DistilBertForSequenceClassification",
    )
    checkpoints: ClassVar[tuple[str, ...]] = ("sentence-transformers/msmarco-distilbert-base-tas-b",)
    prefix: ClassVar[str] = "distilbert."
    names: ClassVar[Mapping[str, str]] = {
        "embeddings.word_embeddings.": "embeddings.words.",
        "embeddings.position_embeddings.": "embeddings.positions.",
        "embeddings.LayerNorm.": "embeddings.norm.",
        "transformer.layer.": "layers.",
        ".attention.q_lin.": ".attention.q_proj.",
        ".attention.k_lin.": ".attention.k_proj.",
        ".attention.v_lin.": ".attention.v_proj.",
        ".attention.out_lin.": ".attention.o_proj.",
        ".sa_layer_norm.": ".attention_norm.",
        ".ffn.lin1.": ".mlp.up_proj.",
        ".ffn.lin2.": ".mlp.down_proj.",
        ".output_layer_norm.": ".mlp_norm.",
    }
    head_names: ClassVar[Mapping[str, str]] = {"pre_classifier.": "dense.", "classifier.": "out."}
    other_heads: ClassVar[tuple[str, ...]] = ("vocab_", "qa_outputs.")
    head_activation: ClassVar[str] = "relu"

    def encoder_spec(self, architecture: str, reader: ConfigReader) -> EncoderSpec:
        return encoder_spec(
            architecture,
            reader,
            keys={
                "hidden_size": "dim",
                "intermediate_size": "hidden_dim",
                "num_hidden_layers": "n_layers",
                "num_attention_heads": "n_heads",
            },
            # Its norms' epsilon is fixed.
            norm_eps=1e-12,
            activation=read_activation(reader, "activation"),
        )


def _check_encoder(reader: ConfigReader) -> None:
    for key in ("is_decoder", "add_cross_attention"):
        if reader.flag(key, False):
            raise reader.reject(key, "such a model is a decoder; encoders alone are served")
    if reader.text("position_embedding_type", "absolute") != "absolute":
        raise reader.reject("position_embedding_type", "positions must be absolute")


def _padding(reader: ConfigReader) -> int:
    """Returns the token that pads, and after which positions are counted."""
    padding = reader.token_ids("pad_token_id") or [1]
    return padding[0]
