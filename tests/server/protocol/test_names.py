"""Who a request belongs to, and how long a name may be that the server keeps."""

from __future__ import annotations

import pytest

from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.protocol.completions import CompletionRequest
from turnout.server.protocol.names import bounded_name


def spec(client: str, **fields: object) -> RequestSpec:
    body = CompletionRequest.model_validate({"prompt": "a", **fields})
    return body.request_spec("id", [1], SamplingParams(), client)


@pytest.mark.parametrize(
    ("client", "user", "belongs_to"),
    [
        ("acme", "ada", ("acme", "ada")),
        ("acme", None, ("acme", "")),
        ("ada", "ada", ("ada", "")),
        ("", None, ("", "")),
    ],
)
def test_a_user_is_one_of_the_clients_unless_it_is_the_client(
    client: str, user: str | None, belongs_to: tuple[str, str]
) -> None:
    made = spec(client, user=user)
    assert (made.client, made.user) == belongs_to


def test_long_names_are_kept_as_digests() -> None:
    long = "x" * 10**6
    made = spec("acme", user=long, cache_salt=long)
    assert made.user == made.cache_salt == bounded_name(long)
    assert len(made.user) < 80
    assert spec(long, user=long).client == made.user and spec(long, user=long).user == ""
    assert bounded_name(long) != bounded_name(long + "x")
    assert bounded_name("x" * 256) == "x" * 256 and bounded_name(None) == ""
