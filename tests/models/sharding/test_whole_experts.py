"""Ranks that have experts whole compute the logits of one device, and bits do not depend on the batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import ranks_in_threads
import torch
from family_checkpoints import write_checkpoint
from ranks_in_threads import CONTEXT, logits_of, on_grid, on_ranks
from torch import nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.meeting import Meeting
from turnout.core.registry.registry import Registry
from turnout.kernels.choice import native_kernels
from turnout.kernels.collectives.shm import SharedMemory
from turnout.models.decoder.experts import Experts
from turnout.models.sharding.whole_experts import experts_of, keep_experts
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.ranks.rank_zero import check_experts

FAMILIES = ("gpt-oss", "gpt-oss-mxfp4", "deepseek-v2", "deepseek-v3", "mixtral", "qwen2-moe", "qwen3-moe")
QUICK = ("mixtral", "gpt-oss")
"""Between them: experts that ranks do not divide evenly, biases, bounded gates, one tensor for all."""


@pytest.mark.parametrize(
    ("name", "parts", "stages"),
    [
        pytest.param(name, *grid, marks=() if name in QUICK and grid == (4, 1) else pytest.mark.slow)
        for name in FAMILIES
        for grid in ((2, 1), (4, 1), (2, 2))
    ],
)
def test_ranks_compute_what_one_device_does(name, parts, stages, tmp_path):
    write_checkpoint(name, tmp_path)
    alone = logits_of(tmp_path)

    def of_rank(part, line):
        line = line if stages > 1 else None
        return logits_of(tmp_path, part, line=line, whole_experts=True)

    together, *_ = on_grid(parts, stages, of_rank)
    within = 1e-5 * max(1.0, float(alone.abs().max()))
    torch.testing.assert_close(together, alone, atol=within, rtol=0)
    assert (together.argmax(-1) == alone.argmax(-1)).all()


@pytest.mark.parametrize("name", ["gpt-oss", pytest.param("deepseek-v2", marks=pytest.mark.slow)])
def test_native_experts_leave_pairs_to_other_ranks(name, tmp_path, monkeypatch):
    try:
        kernels = native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    write_checkpoint(name, tmp_path)
    monkeypatch.setattr(ranks_in_threads, "CONTEXT", ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels))
    alone = logits_of(tmp_path)
    meeting = Meeting.on_this_machine()

    def of_rank(rank):
        with torch.inference_mode():
            return logits_of(tmp_path, SharedMemory(meeting, rank, 2), whole_experts=True)

    with ThreadPoolExecutor(2) as pool:
        together, _ = pool.map(of_rank, range(2))
    meeting.close()
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    assert (together.argmax(-1) == alone.argmax(-1)).all()


def test_a_rank_loads_its_experts_alone(tmp_path):
    """What other ranks have is not even built."""
    write_checkpoint("mixtral", tmp_path)

    def of_rank(collective):
        model, *_ = ranks_in_threads.load(tmp_path, collective, whole_experts=True)
        return [len(layer) for layer in model.modules() if isinstance(layer, Experts)]

    sizes = on_ranks(4, of_rank)
    assert sizes == [[1] * 4, [2] * 4, [1] * 4, [2] * 4], "of six"


@pytest.mark.parametrize("size", [2, 3])
def test_shares_add_up_to_the_whole_with_bits_of_a_batch_alone(size):
    torch.manual_seed(1)
    experts = Experts(nn.Linear(8, 8) for _ in range(7))
    x, chosen = torch.randn(20, 8), torch.randn(20, 7).topk(3).indices
    weights = torch.rand(20, 3)
    shares = [nn.ModuleList([Experts(experts)]) for _ in range(size)]
    for rank, share in enumerate(shares):
        keep_experts(share, rank, size)
    with torch.inference_mode():
        parts = [share[0](x, chosen, weights) for share in shares]
        torch.testing.assert_close(sum(parts), experts(x, chosen, weights), atol=1e-5, rtol=1e-5)
        some = torch.tensor([0, 3, 4, 11])
        for part, share in zip(parts, shares, strict=True):
            torch.testing.assert_close(share[0](x[some], chosen[some], weights[some]), part[some])
    numbers = [number for share in shares for number, _ in share[0].named_children()]
    assert numbers == [str(each) for each in range(7)], "each has its number in the whole layer"


def test_experts_are_given_out_evenly():
    assert [len(experts_of(60, rank, 8)) for rank in range(8)] == [7, 8, 7, 8, 7, 8, 7, 8]
    assert [*experts_of(60, 0, 8), *experts_of(60, 1, 8)] == list(range(15))


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("qwen3", 2, "Qwen3ForCausalLM is no family of Turnout's that has experts"),
        ("mixtral", 1, "to the ranks of --tensor-parallel-size, and there is one"),
        ("mixtral", 8, "MixtralForCausalLM has 6 experts for 8 ranks; take --tensor-parallel-size 6 or less"),
    ],
)
def test_what_has_no_experts_to_give_out_is_refused(name, ranks, message, tmp_path):
    write_checkpoint(name, tmp_path)
    with pytest.raises(ConfigError, match=f"enable_expert_parallel.*{message}"):
        check_experts(open_checkpoint(Registry.load(), str(tmp_path)).spec, ranks)
