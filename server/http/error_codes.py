"""Every status and code of an error, and when it comes: what docs/reference/http-api.md lists."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ERRORS", "Told"]


class Told(NamedTuple):
    """What a client is told."""

    statuses: tuple[int, ...]
    codes: tuple[str, ...]
    """Any of them; empty: `code` is null."""
    when: str
    """In Markdown, as of a page of docs/reference."""


ERRORS = (
    Told(
        (400,),
        (),
        "The body is not a JSON object; a field is missing, of the wrong type or out of range; "
        "something is not supported; a token id is outside the vocabulary; a form cannot be "
        "compiled; the prompt is empty; prompt and output exceed all KV memory (with the sums); the "
        "chat template refuses the conversation, or there is none.",
    ),
    Told(
        (400,),
        ("context_length_exceeded",),
        "The prompt, or prompt and output, exceed the context (with the sums).",
    ),
    Told(
        (400,),
        ("model_required",),
        "[Several models](../how-to/serve.md#serve-several-models) are served, and the request names none.",
    ),
    Told(
        (400,),
        ("thread_unsupported_request",),
        "A client of [Messages](#messages) goes on with a thread; it is to send the whole conversation.",
    ),
    Told((401,), ("invalid_api_key",), "The API key is missing or wrong."),
    Told((401,), ("invalid_admin_key",), "`/admin` without the right admin key."),
    Told(
        (403,),
        ("host_not_allowed", "origin_not_allowed"),
        "The host or the page is [not allowed](../how-to/serve.md#web-pages).",
    ),
    Told((403,), ("admin_forbidden",), "`/admin` from another machine, without an admin key set."),
    Told((404, 405), (), "The path does not exist, or does not take this method."),
    Told((404,), ("model_not_found",), "`model` is not the served one."),
    Told((404,), ("no_ab",), "`/admin/ab` of a server without `--ab`."),
    Told((404,), ("prefix_not_found",), "No [pinned prefix](admin-api.md#pinned-prefixes) has this name."),
    Told(
        (404,),
        ("previous_response_not_found",),
        "A response that a conversation goes on from is not stored.",
    ),
    Told((404,), ("no_batches",), "The server [takes no files and batches](#batches)."),
    Told((404,), ("no_response_store",), "The server [stores no responses](#responses)."),
    Told(
        (404,),
        ("item_not_found",),
        "An item that `input` of a [response](#responses) refers to is not stored.",
    ),
    Told((404,), ("not_found",), "The console has no such file."),
    Told(
        (404,),
        ("profiling_disabled",),
        "The server has no [`--profile-dir`](../how-to/observe.md#profiles).",
    ),
    Told((408,), (), "The headers or the body came [too slowly](limits.md)."),
    Told(
        (408,),
        ("request_dropped",),
        "The scheduling policy [dropped the request](deadlines-and-timing.md#deadlines).",
    ),
    Told((409,), ("prefixes_unsupported",), "The KV backend keeps no prefixes."),
    Told((409,), ("arm_gone",), "The arm has been stopped, or has failed."),
    Told((409,), ("last_arm",), "The arm is the only one that serves, so it cannot be stopped."),
    Told((409,), ("model_not_loaded",), "An `/admin` request about a model that has no engine."),
    Told(
        (409,),
        ("model_busy", "model_pinned", "model_unpinned"),
        "[`/admin/models`](admin-api.md#the-models) cannot unload or pin the model now, or its "
        "engines cannot be changed while it is unloaded; the message says why.",
    ),
    Told(
        (409,),
        ("replica_unchanged", "rollout_unchanged"),
        "[A replica](admin-api.md#the-replicas) or [a rollout](admin-api.md#a-rollout) cannot be "
        "changed so now; the message says why.",
    ),
    Told(
        (409,),
        ("profile_conflict",),
        "A [profile](../how-to/observe.md#profiles) is being recorded already, or none is.",
    ),
    Told((413,), (), "The body is larger than `--max-body-size`, or has [too many values](limits.md)."),
    Told(
        (415,),
        ("unsupported_media_type",),
        "The body's `Content-Type` is not JSON's (`application/json`, `…+json`), or of a file not "
        "`multipart/form-data`. Only a client that is no web page may leave it out, or, on Ollama's paths, "
        "send any other. Or the body is compressed (`Content-Encoding`).",
    ),
    Told(
        (429,),
        ("rate_limit_exceeded",),
        "A [limit of the key](../how-to/serve.md#require-an-api-key); `Retry-After` says when to try again.",
    ),
    Told((431,), (), "The headers are [too large or too many](limits.md)."),
    Told(
        (500,),
        (),
        "A decoding strategy or a logits processor failed at this request, or the error was "
        "unforeseen; then the log has details.",
    ),
    Told(
        (503,),
        ("overloaded",),
        "`--max-waiting` requests are waiting, `--admission` refused, or requests take all of "
        "`--request-memory`. The header `Retry-After` says when to try again.",
    ),
    Told(
        (503,),
        ("shutting_down",),
        "The server is [shutting down](../how-to/serve.md#shut-down) and takes no more requests.",
    ),
    Told((503,), ("engine_gone",), "The engine died, or the server shut down before the request had ended."),
    Told(
        (503,),
        ("prefix_not_computed",),
        "A prefix was [pinned, but not computed](admin-api.md#pinned-prefixes).",
    ),
    Told(
        (503,),
        ("model_load_failed",),
        "The model could not be [loaded](../how-to/serve.md#serve-several-models). `Retry-After` "
        "says when it is tried again.",
    ),
    Told(
        (503,),
        ("unavailable",),
        "The server's main process does not answer one of its "
        "[`--api-workers`](../how-to/scale.md#several-server-processes).",
    ),
    Told((504,), ("engine_busy",), "An `/admin` request waited 30 seconds for a step to end."),
    Told(
        (507,),
        ("storage_full",),
        "The disk is full, or a bound is reached; the message names file and bound.",
    ),
    Told(
        (507,),
        ("storage_failed",),
        "A file in which the server keeps things cannot be used; the message says why.",
    ),
)
"""By status."""
