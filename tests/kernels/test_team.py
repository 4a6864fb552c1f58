"""The native kernels' threads: how a loop is divided among them changes no result."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from turnout.config import EngineConfig
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.kernels import CpuKernels
from turnout.kernels.threads import give_back_threads, kernel_threads, take_over_threads
from turnout.llm import LLM
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.runner.assembly import build_engine
from turnout.sampling.by_rows import MIN_SIZE, by_rows


@pytest.fixture(scope="module")
def kernels(variant_kernels: CpuKernels) -> CpuKernels:
    return variant_kernels


@pytest.fixture
def threads() -> Iterator[None]:
    """Leaves PyTorch's threads as they were."""
    before = torch.get_num_threads()
    yield
    give_back_threads()
    torch.set_num_threads(before)


def computed(kernels: CpuKernels, count: int, rows: int = 5) -> Tensor:
    torch.set_num_threads(count)
    generator = torch.Generator().manual_seed(0)
    packed = kernels.pack([torch.randn(1000, 256, generator=generator)])
    return kernels.linear(torch.randn(rows, 256, generator=generator), packed, None)


@pytest.mark.usefixtures("threads")
def test_any_number_of_threads_computes_the_same(kernels: CpuKernels) -> None:
    alone = computed(kernels, 1)
    for count in (2, 3, 7, 300):
        assert torch.equal(computed(kernels, count), alone)


@pytest.mark.usefixtures("threads")
def test_two_callers_at_once_do_not_meet(kernels: CpuKernels) -> None:
    alone = computed(kernels, 1, rows=3)
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: computed(kernels, 3, rows=3), range(200))
        assert all(torch.equal(each, alone) for each in found)


FORKED = """
import os, torch
from turnout.kernels import CpuKernels
from turnout.kernels.build import built_library
kernels = CpuKernels(built_library())
torch.set_num_threads(4)
packed, x = kernels.pack([torch.ones(1000, 256)]), torch.ones(3, 256)
before = kernels.linear(x, packed, None)
child = os.fork()
if not child:
    os._exit(0 if torch.equal(kernels.linear(x, packed, None), before) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no compiler")
def test_a_forked_process_computes_without_the_threads_it_did_not_inherit() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60, env={**os.environ})


REFUSED = """
import os, resource, torch
from pathlib import Path
from turnout.kernels import CpuKernels
from turnout.kernels.build import built_library
kernels = CpuKernels(built_library())
packed, x = kernels.pack([torch.ones(1000, 256)]), torch.ones(3, 256)
torch.set_num_threads(1)
before = kernels.linear(x, packed, None)
torch.set_num_threads(4)
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 2**20, resource.RLIM_INFINITY))
same = torch.equal(kernels.linear(x, packed, None), before)
kernels.populate([x])
os._exit(not same)
"""


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no compiler")
def test_where_the_system_gives_no_more_threads_those_there_are_compute_all() -> None:
    """The process ended by std::terminate. Here there is no memory for a thread's stack."""
    subprocess.run([sys.executable, "-c", REFUSED], check=True, timeout=60, env={**os.environ})


@pytest.mark.usefixtures("threads")
def test_kernels_take_pytorchs_threads_over_and_give_them_back() -> None:
    torch.set_num_threads(3)
    take_over_threads()
    assert (torch.get_num_threads(), kernel_threads()) == (1, 3)
    take_over_threads()
    assert kernel_threads() == 3
    give_back_threads()
    assert (torch.get_num_threads(), kernel_threads()) == (3, 3)


@pytest.mark.usefixtures("threads")
def test_an_llm_leaves_pytorch_its_threads() -> None:
    torch.set_num_threads(2)
    llm = LLM("turnout-tiny", kv_memory="8MiB", max_model_len=64)
    llm.generate("def", progress=False)
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("kv", "left"), [("paged", 1), ("paged:attention=torch", 2)])
def test_pytorch_keeps_its_threads_where_it_multiplies_or_attends_itself(
    kv: str, left: int, tmp_path: Path
) -> None:
    """Experts are computed layer by layer, with PyTorch between them; it attends where that is asked for."""
    shape = Shape(128, 2, 4, 2, 256, 160, max_positions=512, experts=6, top=2, expert_size=128)
    write_random_checkpoint(tmp_path, config_of(shape, "qwen3_moe", dtype="float32"), seed=5)
    torch.set_num_threads(2)
    config = EngineConfig(model=str(tmp_path), cpu_kernels="native", kv=kv, kv_memory=2**22, max_model_len=64)
    engine = build_engine(config).engine
    params = SamplingParams(temperature=0, max_tokens=4)
    engine.add(RequestSpec(id="a", prompt=[5, 6, 7], params=params, seed=0))
    engine.step()
    assert torch.get_num_threads() == left


@pytest.mark.usefixtures("threads")
def test_rows_of_a_large_tensor_are_computed_in_parts_with_the_same_result() -> None:
    torch.set_num_threads(3)
    x = torch.randn(7, MIN_SIZE // 7 + 1)
    parts: list[slice] = []

    def doubled(some: Tensor, part: slice) -> Tensor:
        parts.append(part)
        return some * 2 + torch.arange(7)[part, None]

    whole = by_rows(doubled, x)
    assert parts == [slice(0, 7)]
    take_over_threads()
    assert torch.equal(by_rows(doubled, x), whole)
    assert sorted((part.start, part.stop) for part in parts[1:]) == [(0, 2), (2, 4), (4, 7)]
