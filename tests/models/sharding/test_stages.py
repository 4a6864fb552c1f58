"""A model that stages divide computes the logits that it computes whole, bit for bit."""

from __future__ import annotations

import pytest
import torch
from family_checkpoints import FAMILIES, write_checkpoint
from ranks_in_threads import Meeting, ThreadCollective, logits_of, on_grid
from torch import nn

from turnout.core.errors import ConfigError
from turnout.core.types.layer_attention import LayerAttention
from turnout.models import families
from turnout.models.meta_model import meta_model
from turnout.models.random.shapes import Shape, config_of
from turnout.models.sharding.plan import plan_shards
from turnout.models.sharding.stages import OF_DECODER, divide_layers, spec_of_layers
from turnout.plugins.kv_backends.paged.host.kv_groups import groups_of

QUICK = ("qwen3-biased", "gpt2", "gemma3")
"""Between them: tied embeddings, learned positions, KV groups with windows that stages divide."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in FAMILIES],
)
def test_stages_compute_what_one_device_does(name, tmp_path):
    write_checkpoint(name, tmp_path)
    alone = logits_of(tmp_path)
    together, _ = on_grid(1, 2, lambda part, line: logits_of(tmp_path, part, line=line))
    assert torch.equal(together, alone)


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each == "qwen3" else pytest.mark.slow) for each in FAMILIES],
)
def test_stages_whose_layers_ranks_divide(name, tmp_path):
    """Two ranks for each of two stages give the bits of two ranks."""
    write_checkpoint(name, tmp_path)
    ranks, _ = on_grid(2, 1, lambda part, _: logits_of(tmp_path, part))
    together, *_ = on_grid(2, 2, lambda part, line: logits_of(tmp_path, part, line=line))
    assert torch.equal(together, ranks)


def test_uneven_stages_with_a_middle(tmp_path):
    write_checkpoint("qwen3", tmp_path)
    alone = logits_of(tmp_path)
    together, *_ = on_grid(1, 3, lambda part, line: logits_of(tmp_path, part, line=line, layers=(1, 2, 1)))
    assert torch.equal(together, alone)


def decoder(layers: int, vocabulary: int, family=families.Llama):
    shape = Shape(64, layers, 4, 2, 96, vocabulary)
    spec = family().spec(config_of(shape, "llama"))
    return meta_model(family(), spec), spec


def test_layers_are_divided_by_what_they_weigh():
    """The head is as large as 12 layers, and counts as half."""
    whole, _ = decoder(24, 5784)
    layer = sum(parameter.numel() for parameter in whole.model.layers[0].parameters())
    assert whole.lm_head.weight.numel() == 12 * layer
    assert divide_layers(whole, OF_DECODER, 2, "") == (range(15), range(15, 24))
    assert [len(each) for each in divide_layers(decoder(9, 160)[0], OF_DECODER, 3, "")] == [3, 3, 3]
    with pytest.raises(ConfigError, match=r"pipeline_parallel_size=3 .* it has 2 layers, and each stage"):
        divide_layers(decoder(2, 160)[0], OF_DECODER, 3, "Llama")


@pytest.mark.parametrize("layers", [(1, 2), (4,), (0, 4), (2, 1, 1)])
def test_wrong_numbers_of_layers_are_refused(layers):
    _, spec = decoder(4, 160)
    line = ThreadCollective(Meeting(2), 0, 2)
    with pytest.raises(ConfigError, match=r"expected 2 numbers from 1 on, .* the model's 4 layers together"):
        plan_shards(families.Llama(), spec, ThreadCollective(Meeting(1), 0, 1), line, layers)


def test_layers_that_share_keys_are_not_parted():
    _, spec = decoder(4, 160)
    rules = [LayerAttention(4, 2, 16, 16)] * 3 + [LayerAttention(4, 2, 16, 16, kv_from=1)]
    shared = type(spec)(**{**vars(spec), "attention": tuple(rules)})
    assert spec_of_layers(shared, range(1, 4)).attention[2].kv_from == 0
    with pytest.raises(ConfigError, match=r"before layer 2: a layer behind it reads .* of layer 1"):
        spec_of_layers(shared, range(2, 4))


def test_groups_keep_their_tables_and_have_places_for_a_stage_alone():
    _, spec = decoder(6, 160)
    full, narrow = LayerAttention(4, 2, 16, 16), LayerAttention(4, 2, 16, 16, window=32)
    spec = type(spec)(**{**vars(spec), "attention": (narrow, narrow, full, narrow, narrow, full)})
    groups = groups_of(spec)
    assert groups is not None
    for first, count in ((0, 3), (3, 3), (2, 1), (1, 5)):
        part = groups.of_layers(first, count)
        assert part.table_of == groups.table_of[first : first + count]
        assert part.windows == groups.windows
        places = list(zip(part.table_of, part.place_of, strict=True))
        assert len(set(places)) == count
        assert max(part.place_of) < part.height <= groups.height
        for layer, (table, place) in enumerate(places):
            assert part.groups[table].layers[place] == layer


class Unnumbered(nn.Module):
    """A layer of a third party."""


class OfThirdParty(families.Llama):
    def build(self, spec):
        built = super().build(spec)
        built.model.layers[1] = Unnumbered()
        return built


class OfItsOwn(families.Llama):
    def build(self, spec):
        return nn.Linear(spec.hidden_size, spec.hidden_size)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (OfThirdParty, "its layer 1, a Unnumbered, does not keep its number in an attribute `layer`"),
        (OfItsOwn, "pipeline_parallel_size=2: .* is run by Linear, .* Leave --pipeline-parallel-size out"),
    ],
)
def test_layers_that_nobody_proved_cannot_be_divided(family, message):
    _, spec = decoder(2, 160)
    line = ThreadCollective(Meeting(2), 1, 2)
    with pytest.raises(ConfigError, match=message):
        plan_shards(family(), spec, ThreadCollective(Meeting(1), 0, 1), line)
