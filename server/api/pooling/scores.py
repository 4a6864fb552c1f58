"""``POST /v1/score``, ``/v1/rerank`` and ``/classify``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.core.types.pooling import PoolingFacts, PoolingParams
from turnout.server.api.context import context_of
from turnout.server.api.pooling.serving import Asked, answered, numbers
from turnout.server.api.pooling.texts import Pair, Texts, facts_of
from turnout.server.http.bodies.body import read_body
from turnout.server.http.openapi.operation import operation
from turnout.server.protocol.pooling.answers import (
    Classes,
    ClassesList,
    PoolingUsage,
    Ranked,
    RankedDocument,
    RankedList,
    Score,
    ScoreList,
)
from turnout.server.protocol.pooling.requests import ClassifyRequest, PairRequest, RerankRequest, ScoreRequest
from turnout.text.prompt.named_prompt import prompt_named

__all__ = ["classify", "rerank", "score"]

COHERES_LENGTH = 4096
"""Tokens of each document that Cohere keeps where a request does not say how many."""


@operation(body=ScoreRequest, answer=ScoreList, generates=True)
async def score(request: Request) -> Response:
    """Scores pairs of texts."""
    context = context_of(request)
    body = await read_body(request, ScoreRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    id = Asked.new_id("score")
    async with context.assigned_arm(request, body.user, id) as arm:
        asked = Asked(request, context, body, arm, id)
        scored = await _scored(asked, body.pairs(), _Named("text_1", "text_2"))
        data = [Score(number, value) for number, value in enumerate(scored.values)]
        return await answered(
            asked, len(data), lambda created: ScoreList(id, created, context.model_name, data, scored.usage)
        )


@operation(body=RerankRequest, answer=RankedList, generates=True)
async def rerank(request: Request) -> Response:
    """Ranks documents by their relevance for a query."""
    context = context_of(request)
    body = await read_body(request, RerankRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    id, texts = Asked.new_id("rerank"), body.documents
    of_cohere = request.url.path == "/v2/rerank"
    shown = not of_cohere if body.return_documents is None else body.return_documents
    most = COHERES_LENGTH if of_cohere and body.max_tokens_per_doc is None else body.max_tokens_per_doc
    async with context.assigned_arm(request, body.user, id) as arm:
        asked = Asked(request, context, body, arm, id)
        pairs = [(body.query, text) for text in texts]
        scored = await _scored(asked, pairs, _Named("query", "documents"), most)
        best = sorted(enumerate(scored.values), key=lambda each: -each[1])[: body.top_n]
        results = [
            Ranked(at, value, RankedDocument(texts[at])) if shown else Ranked(at, value) for at, value in best
        ]
        meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
        return await answered(
            asked, len(results), lambda _: RankedList(id, context.model_name, results, scored.usage, meta)
        )


@operation(body=ClassifyRequest, answer=ClassesList, generates=True)
async def classify(request: Request) -> Response:
    """Classifies texts by the model's head."""
    context = context_of(request)
    body = await read_body(request, ClassifyRequest, limit=context.config.max_body_size)
    context = context.of(body.model)
    id = Asked.new_id("classify")
    async with context.assigned_arm(request, body.user, id) as arm:
        asked, facts = Asked(request, context, body, arm, id), facts_of(arm)
        before = prompt_named(facts, body.prompt_name, body.input_type)
        if not body.input:
            raise RequestError("at least one text is expected", "input")
        texts = Texts(body.input, body.pooling_params(), before, body.add_special_tokens)
        pooled = await asked.pooled(texts)

        def answer(created: int) -> ClassesList:
            data = []
            for number, each in enumerate(pooled.found):
                probs = numbers(each)
                likeliest = max(range(len(probs)), key=probs.__getitem__)
                data.append(Classes(number, facts.labels[likeliest], probs, len(probs)))
            return ClassesList(id, created, context.model_name, data, pooled.usage)

        return await answered(asked, pooled.numbers, answer)


class _Named(NamedTuple):
    """What the client calls the two texts of a pair."""

    first: str
    second: str


class _Scored(NamedTuple):
    values: Sequence[float]
    usage: PoolingUsage


async def _scored(
    asked: Asked, pairs: Sequence[tuple[str, str]], named: _Named, most: int | None = None
) -> _Scored:
    """Returns the score of each pair, by the model's head, or else by the similarity of embeddings.

    most: tokens that are kept of each second text.
    """
    facts = facts_of(asked.arm)
    if facts.labels:
        return await _by_head(asked, facts, pairs, named, most)
    if not facts.embedder:
        raise RequestError(
            "the model has no classification head, so it neither scores nor ranks; serve a cross-encoder, or "
            "an embedder, whose embeddings are compared (`--pooling` makes one of any model)",
            "model",
        )
    return await _by_similarity(asked, facts, pairs, named, most)


async def _by_head(
    asked: Asked, facts: PoolingFacts, pairs: Sequence[tuple[str, str]], named: _Named, most: int | None
) -> _Scored:
    """A pair that is too long is named by its second text."""
    if len(facts.labels) > 1:
        raise RequestError(
            f"the model's head gives {len(facts.labels)} scores; a pair needs a head that gives one. "
            "/classify shows all",
            "model",
        )
    body = asked.body
    assert isinstance(body, PairRequest)
    before = body.instruction or prompt_named(facts, body.prompt_name)
    texts = Texts([Pair(*pair) for pair in pairs], body.pooling_params(), before, most_of_second=most)
    pooled = await asked.pooled(texts, named.second)
    return _Scored([numbers(each)[0] for each in pooled.found], pooled.usage)


async def _by_similarity(
    asked: Asked, facts: PoolingFacts, pairs: Sequence[tuple[str, str]], named: _Named, most: int | None
) -> _Scored:
    """Each text that several pairs have is embedded once."""
    body = asked.body
    assert isinstance(body, PairRequest)
    before_queries, before_others = _before_queries(facts, body), prompt_named(facts, None, "document")
    queries, others = (_places(texts) for texts in zip(*pairs, strict=True))
    params = PoolingParams()
    first = Texts(list(queries), params, before_queries, numbers=list(queries.values()))
    second = Texts(list(others), params, before_others, numbers=list(others.values()))
    of_queries = await asked.pooled(first, named.first)
    of_others = await asked.pooled(second, named.second, most)
    one, two = (
        dict(zip(queries, of_queries.found, strict=True)),
        dict(zip(others, of_others.found, strict=True)),
    )

    def compare() -> list[float]:
        # Imported here, because nothing else in this process needs numpy.
        from turnout.runner.pooling.similarity import similarity, vector_of

        queries, others = (
            {text: vector_of(pooled) for text, pooled in found.items()} for found in (one, two)
        )
        return [similarity(facts.similarity, queries[query], others[other]) for query, other in pairs]

    tokens = of_queries.tokens + of_others.tokens
    return _Scored(await asked.context.rendering.run(compare), PoolingUsage(tokens, tokens))


def _places(texts: Sequence[str]) -> dict[str, int]:
    """The first place of each text."""
    places: dict[str, int] = {}
    for at, text in enumerate(texts):
        places.setdefault(text, at)
    return places


def _before_queries(facts: PoolingFacts, body: PairRequest) -> str:
    """Returns what an embedder has in front of queries.

    Raises RequestError for an instruction: how one is put differs between embedders, and no folder says it.
    """
    if body.instruction:
        raise RequestError(
            "an embedder takes no instruction; name a prompt of the model's folder by prompt_name, or write "
            "it into the query",
            "instruction",
        )
    return prompt_named(facts, body.prompt_name, "query")
