"""The toy model of `turnout.testing`, by one short name for the tests of this repository."""

from __future__ import annotations

from turnout.testing.checks.brute_force import expected
from turnout.testing.toy.decodings import ToyBeam, ToyDecoding, ToyGreedy, ToyLookup, ToyParallel
from turnout.testing.toy.engine import ToyOutcome, drive, toy_engine, toy_request
from turnout.testing.toy.model import EOS, VOCABULARY, argmax, log_softmax, toy_logits
from turnout.testing.toy.runner import ToyRunner, slots_of, toy_kv

__all__ = [
    "EOS",
    "VOCABULARY",
    "ToyBeam",
    "ToyDecoding",
    "ToyGreedy",
    "ToyLookup",
    "ToyOutcome",
    "ToyParallel",
    "ToyRunner",
    "argmax",
    "drive",
    "expected",
    "log_softmax",
    "slots_of",
    "toy_engine",
    "toy_kv",
    "toy_logits",
    "toy_request",
]
