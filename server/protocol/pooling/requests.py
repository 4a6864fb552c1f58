"""The requests for embeddings, scores and classes: OpenAI's, vLLM's, Cohere's and Jina's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, field_validator, model_validator

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.core.types.pooling import PoolingParams, Task
from turnout.server.protocol.chat import Messages
from turnout.server.protocol.token_ids import Truncation, are_token_ids
from turnout.server.protocol.unsupported import OF_POOLING, refuse_unsupported

__all__ = [
    "ClassifyRequest",
    "EmbeddedRequest",
    "EmbeddingRequest",
    "PairRequest",
    "PooledRequest",
    "PoolingRequest",
    "RerankRequest",
    "ScoreRequest",
    "Text",
]

Text = str | list[int]
"""A text, or token ids."""
Format = Literal["float", "base64"]


class PooledRequest(BaseModel):
    """What requests that generate nothing have in common. None means: not given."""

    model_config = ConfigDict(strict=True, extra="allow")

    CUT_BY: ClassVar[str] = "truncate_prompt_tokens"
    """What errors call the field by which texts that are too long are cut."""

    model: str | None = None
    """Another name than the served one gets 404. Default: the served one."""
    user: str | None = None
    """The client, for policies that share between clients. Default: the client's API key."""
    priority: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    """vLLM's. Lower is served first, by policies that look at it."""
    truncate_prompt_tokens: Truncation | None = None
    """vLLM's. Keep only so many tokens of each text; -1: as many as the model takes. Default: a longer text
    is refused."""
    truncation_side: Literal["left", "right"] | None = None
    """vLLM's. Where texts are cut. Default: as the model's tokenizer has it, else `right`."""
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    """vLLM's. Share computed prefixes [only with requests of the same salt](../explanation/kv.md#salts)."""

    @model_validator(mode="after")
    def _supported(self) -> Self:
        refuse_unsupported(self.model_extra or {}, OF_POOLING)
        return self

    def pooling_params(self) -> PoolingParams:
        """Raises RequestError for what is out of its range."""
        return PoolingParams()


class _Inputs(PooledRequest):
    """Texts, each for itself."""

    input: Annotated[list[Text], SkipValidation] = Field(default_factory=list)
    """A text, several, token ids, or several lists of those."""
    add_special_tokens: bool = True
    """vLLM's. Let the tokenizer add its own."""
    prompt_name: str | None = None
    """What the model's folder puts in front of texts, by its name there."""
    input_type: str | None = None
    """Cohere's. As `prompt_name`, of models that have prompts: `query`, `document`, `search_query`, …"""

    @field_validator("input", mode="before", json_schema_input_type=Text | list[Text])
    @classmethod
    def _texts(cls, value: object) -> list[Text]:
        texts: Any = [value] if isinstance(value, str) or _is_ids(value) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) or _is_ids(text) for text in texts):
            raise ValueError(
                "a string, a list of strings, a list of token ids or a list of such lists is expected"
            )
        return _counted(texts)


class EmbeddedRequest(_Inputs):
    """What requests for vectors have in common."""

    messages: Messages | None = None
    """vLLM's. A conversation in place of `input`."""
    encoding_format: Format = "float"
    """`base64`: float32, the low byte first. Embeddings of each token follow one another there, as in vLLM;
    `/v1/embeddings` lists them as numbers in any case."""
    dimensions: int | None = None
    """Keep so many leading numbers of each embedding, normalized after that."""
    normalize: bool | None = None
    """vLLM's. Give embeddings the length 1. Default: as the model's folder says, else true."""
    normalized: bool | None = None
    """Jina's name of `normalize`."""
    pooling: str | None = None
    """Turnout's. The name of the [pooling](policies.md#pooling). Default: the model's."""

    @property
    def length_one(self) -> bool | None:
        return self.normalized if self.normalize is None else self.normalize

    def pooling_params(self) -> PoolingParams:
        return PoolingParams(pooling=self.pooling, normalize=self.length_one, dimensions=self.dimensions)


class EmbeddingRequest(EmbeddedRequest):
    """The body of a request for embeddings."""

    task: str | None = None
    """Jina's. As `prompt_name`."""


class PoolingRequest(EmbeddedRequest):
    """The body of a request to `/pooling`."""

    task: Literal["embed", "classify", "token_embed"] = "embed"
    """vLLM's. `token_embed`: an embedding of each token."""
    use_activation: bool = True
    """vLLM's. Of `classify`: turn scores into probabilities."""

    def pooling_params(self) -> PoolingParams:
        task: Task = "classify" if self.task == "classify" else "embed"
        return PoolingParams(
            task=task,
            pooling="token" if self.task == "token_embed" else self.pooling,
            normalize=self.length_one,
            dimensions=self.dimensions,
            activation=self.use_activation,
        )


class ClassifyRequest(_Inputs):
    """The body of a request to classify texts."""

    use_activation: bool = True
    """vLLM's. Turn scores into probabilities."""

    def pooling_params(self) -> PoolingParams:
        return PoolingParams(task="classify", activation=self.use_activation)


class PairRequest(PooledRequest):
    """What requests that score pairs have in common."""

    instruction: str | None = None
    """Turnout's. What a reranker is told to do, in place of what its folder says. An embedder refuses it."""
    prompt_name: str | None = None
    """The instruction, or what an embedder puts in front of queries, by its name in the model's folder."""
    use_activation: bool = True
    """vLLM's. Turn scores into probabilities."""

    def pooling_params(self) -> PoolingParams:
        return PoolingParams(task="classify", pair=True, activation=self.use_activation)


class ScoreRequest(PairRequest):
    """The body of a request to score pairs of texts."""

    text_1: Annotated[list[str], SkipValidation]
    """A text for each of `text_2`, or one for all."""
    text_2: Annotated[list[str], SkipValidation]
    """One text or several."""

    @field_validator("text_1", "text_2", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _texts(cls, value: object) -> list[str]:
        texts: Any = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("a string or a list of strings is expected")
        return _counted(texts)

    def pairs(self) -> list[tuple[str, str]]:
        """Raises RequestError where the texts make no pairs."""
        one, two = self.text_1, self.text_2
        if len(one) not in (1, len(two)):
            raise RequestError(
                f"text_1 has {len(one)} texts and text_2 has {len(two)}; one is expected, or as many",
                "text_1",
            )
        return list(zip(one * len(two) if len(one) == 1 else one, two, strict=True))


class _Document(BaseModel):
    """A document as Jina and Cohere write it."""

    text: str


class RerankRequest(PairRequest):
    """The body of a request to rank documents."""

    query: str
    """What documents are ranked for."""
    documents: Annotated[list[str], SkipValidation]
    """Texts, or objects with a `text`."""
    top_n: Annotated[int, Field(ge=1)] | None = None
    """Return so many of the best. Default: all."""
    return_documents: bool | None = None
    """Whether results hold their documents. Default: of `/v2/rerank` no, else yes."""
    max_tokens_per_doc: Annotated[int, Field(ge=1)] | None = None
    """Cohere's. Keep only so many tokens of each document, and with its query as many as the model takes.
    Default: of `/v2/rerank` 4096, else longer documents are refused."""

    @field_validator("query")
    @classmethod
    def _query(cls, value: str) -> str:
        if not value:
            raise ValueError("the query is empty; it is expected to have a character")
        return value

    @field_validator("documents", mode="before", json_schema_input_type=list[str | _Document])
    @classmethod
    def _texts(cls, value: object) -> list[str]:
        if not isinstance(value, list):
            raise ValueError("a list of documents is expected")
        texts = [each.get("text") if isinstance(each, dict) else each for each in value]
        for at, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"document {at} is expected to be a string, or an object with a text")
        return _counted(texts)


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and are_token_ids(value)


def _counted(texts: list[Any]) -> list[Any]:
    """Raises ValueError for no texts, for too many, and for an empty one."""
    if not texts:
        raise ValueError("at least one text is expected")
    if len(texts) > limits.POOLED.most:
        raise ValueError(f"at most {limits.POOLED.whole:,} texts are expected, not {len(texts):,}")
    if "" in texts:
        raise ValueError(f"text {texts.index('')} is empty; each is expected to have a character")
    return texts
