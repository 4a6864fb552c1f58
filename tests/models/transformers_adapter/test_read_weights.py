"""A linear layer by whose weight other modules compute is found, and stays as it is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.models.transformers_adapter.exchange.layers import Exchanges, exchange_layers
from turnout.models.transformers_adapter.exchange.watched_linears import watched_linears


class Mixture(nn.Module):
    """As DeepSeek-V2's in transformers 5.0: it computes its gate in float32, beside the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4, bias=False)
        self.up = nn.Linear(8, 8)
        self.down = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        scores = nn.functional.linear(x.float(), self.gate.weight.float())
        return self.down(self.up(x).to(self.down.weight.dtype)) * scores.softmax(-1).amax()


def test_what_others_compute_with_is_kept_and_what_they_look_at_is_not() -> None:
    model, x = nn.Sequential(Mixture(), Mixture()), torch.randn(3, 8)
    expected = model(x)
    linear = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    with watched_linears(linear) as seen:
        assert torch.equal(model(x), expected)
    assert seen.kept == {"*.gate"}
    names = [name for name, _ in model.named_parameters()]
    exchange_layers(model, Exchanges({"*.gate"}))
    assert [type(model.get_submodule(name)) is nn.Linear for name in ("0.gate", "1.gate", "0.up")] == [
        False,
        False,
        True,
    ]
    assert torch.equal(model(x), expected)
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
