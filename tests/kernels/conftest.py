"""The native kernels, in every variant that this machine can run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnout.kernels import CpuKernels
from turnout.kernels.build import BuildError, UnknownFlags, compiled_library, find_compiler
from turnout.kernels.variants import VARIANTS, Variant, obstacle, usable_variants

BEST = next(iter(usable_variants())).name
QUICK = {BEST, "amx-emulated"}
"""Variants that are always tested; the others are slow, since each has to be compiled."""


def _marked(variant: Variant) -> object:
    return pytest.param(variant, id=variant.name, marks=[] if variant.name in QUICK else pytest.mark.slow)


@pytest.fixture(scope="module", params=list(map(_marked, VARIANTS)))
def variant_kernels(request: pytest.FixtureRequest) -> Iterator[CpuKernels]:
    variant: Variant = request.param
    if why := obstacle(variant):
        pytest.skip(why)
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    try:
        library = compiled_library(variant)
    except UnknownFlags as error:
        pytest.skip(str(error))
    yield CpuKernels(library)
