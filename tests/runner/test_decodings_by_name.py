"""A strategy that wraps others serves the requests that name it, and no others; a broken one is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.core.errors import RequestError
from turnout.core.types.sampling_params import SamplingParams
from turnout.llm import LLM

PLUGIN = '''
from turnout import Decoding, hookimpl
from turnout.core.types.decision import Continuation

class Fives(Decoding):
    """Says the fifth token for ever."""
    wraps = True
    def accepts(self, params):
        return True
    def decide(self, requests, logits):
        return [Continuation(sequence, [5]) for request in requests for sequence in request.live]

class Broken(Fives):
    """Cannot start."""
    def start(self, resources):
        raise OSError("no such model")

@hookimpl
def register_decodings(register):
    register("fives", Fives)
    register("broken", Broken)
'''


def test_what_wraps_serves_those_that_name_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "turnout_plugins.py").write_text(PLUGIN)
    llm = LLM(kv_memory="16MiB", device="cpu", plugins_folder=str(tmp_path))
    plain = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    named = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, decoding="fives")
    one, other = llm.generate(["import os"] * 2, [plain, named], progress=False)
    assert other.outputs[0].token_ids == [5] * 4 != one.outputs[0].token_ids
    assert "decoding broken is not on offer: OSError: no such model" in caplog.text
    with pytest.raises(RequestError, match="'broken' here; known: beam, fives, greedy, sampling"):
        llm.generate("a", SamplingParams(decoding="broken"), progress=False)
