"""Our own KV backends pass the suite that third parties' do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turnout.testing import KVBackendSuite

BACKENDS = [
    "contiguous",
    pytest.param("paged", marks=pytest.mark.slow),
    pytest.param("paged:block_size=1", marks=pytest.mark.slow),
    "paged:block_size=4",
    pytest.param("paged:block_size=4,prefix_caching=false", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name", BACKENDS)
class TestKVBackend(KVBackendSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.spec = name  # type: ignore[misc]


class Stored:
    """Keys and values as `dtype` keeps them: as docs/explanation/kv.md says, not as the code does."""

    def in_bfloat16(self, vectors: Tensor) -> Tensor:
        return vectors.bfloat16().to(vectors.dtype)

    def in_int8(self, vectors: Tensor) -> Tensor:
        scales = self._scales(vectors, 127)
        return (vectors.float() / scales).round().to(vectors.dtype) * scales

    def in_fp8(self, vectors: Tensor) -> Tensor:
        scales = self._scales(vectors, 448)
        return (vectors.float() / scales).to(torch.float8_e4m3fn).to(vectors.dtype) * scales

    def _scales(self, vectors: Tensor, top: float) -> Tensor:
        """One for each token and head."""
        return (vectors.float().abs().amax(-1, keepdim=True) / top).bfloat16().float()


@pytest.mark.parametrize(
    ("backend", "stored"),
    [
        ("contiguous", "int8"),
        ("paged:block_size=4", "fp8"),
        pytest.param("contiguous", "bfloat16", marks=pytest.mark.slow),
        pytest.param("contiguous", "fp8", marks=pytest.mark.slow),
        pytest.param("paged:block_size=4", "bfloat16", marks=pytest.mark.slow),
        pytest.param("paged:block_size=4", "int8", marks=pytest.mark.slow),
    ],
)
class TestStoredInFewerBits(KVBackendSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, backend: str, stored: str) -> None:
        self.spec = f"{backend}{',' if ':' in backend else ':'}dtype={stored}"  # type: ignore[misc]
        self.dtype = "float32" if stored == "fp8" else "float64"  # type: ignore[misc]
        self.stored = getattr(Stored(), f"in_{stored}")  # type: ignore[method-assign]

    def stored(self, vectors: Tensor) -> Tensor:
        raise NotImplementedError

    # The books are of positions, whatever is stored there: `TestKVBackend` has audited both backends' own.
    test_every_call_keeps_its_contract = None
    test_all_memory_is_given_back = None
    test_aborted_requests_give_their_memory_back = None
    test_salts_keep_prefixes_apart = None
    test_only_equal_prefixes_are_found = None
    test_what_is_not_computed_yet_is_not_found = None
    test_a_request_that_never_fits_is_refused = None
    test_the_same_calls_give_the_same_moves = None
