"""What ``turnout plugins new`` writes about each kind of plugin."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SKELETONS", "Skeleton"]


@dataclass(frozen=True)
class Skeleton:
    """How a new package names and tests a kind; ``templates/KIND.py.txt`` is the plugin itself."""

    kind: str
    """The name in ``turnout plugins``."""
    noun: str
    suite: str
    """The name of its suite in `turnout.testing`."""
    use: str
    """The command that uses the plugin ``$name``."""
    claims: tuple[str, ...] = ('spec = "$name"',)
    """Lines of its suite: the plugin under test, and what it claims."""
    checked: str = ""
    """The same claims, as options of ``turnout plugins check``."""

    serves: bool = True
    """Whether slow tests of the suite serve the embedded model with the plugin."""

    @property
    def article(self) -> str:
        return "an" if self.noun[0] in "aeiou" else "a"


SERVE = "turnout serve"

_ALL = (
    Skeleton(
        "scheduler", "scheduling policy", "SchedulingPolicySuite", f"{SERVE} --scheduler $name:aging=50"
    ),
    Skeleton("kv", "KV backend", "KVBackendSuite", f"{SERVE} --kv $name"),
    Skeleton(
        "kv_eviction",
        "eviction policy",
        "EvictionPolicySuite",
        f"{SERVE} --kv-eviction $name",
        ('spec = "$name"', "ends_first = False  # remove this if yours evicts the end first"),
        " --claim ends_first=false",
    ),
    Skeleton("quantization", "quantizer", "QuantizerSuite", f"{SERVE} --quantization $name"),
    Skeleton(
        "decoding",
        "decoding strategy",
        "DecodingSuite",
        f"{SERVE} --decoding $name:sure=0.8",
        ('spec = "$name"', "unbiased = False  # remove this if yours draws from the model's distribution"),
        " --claim unbiased=false",
    ),
    Skeleton(
        "proposer",
        "proposer for speculative decoding",
        "ProposerSuite",
        f"{SERVE} --decoding speculative:proposer=$name",
    ),
    Skeleton("pooling", "pooling strategy", "PoolingSuite", f"{SERVE} --pooling $name", serves=False),
    Skeleton(
        "length_predictor",
        "length predictor",
        "LengthPredictorSuite",
        f"{SERVE} --scheduler sjf --length-predictor $name:weight=0.5",
    ),
    Skeleton("admission", "admission policy", "AdmissionPolicySuite", f"{SERVE} --admission $name:most=16"),
    Skeleton(
        "router",
        "router",
        "RouterSuite",
        "turnout simulate --replicas 4 --router $name:tokens=256",
        ('spec = "$name"', "spreads = False  # remove this if yours uses every idle replica"),
        " --claim spreads=false",
        serves=False,
    ),
    Skeleton("launcher", "launcher", "LauncherSuite", f"{SERVE} --launcher $name:level=10", serves=False),
    Skeleton(
        "logits_processor", "logits processor", "LogitsProcessorSuite", f"{SERVE}     # it is always active"
    ),
    Skeleton("observer", "observer", "ObserverSuite", f"{SERVE} --observer $name:seconds=1", serves=False),
    Skeleton(
        "format",
        "output format",
        "OutputFormatSuite",
        f"{SERVE} FOLDER --format $name",
        (
            'spec = "$name"',
            'specials = ("<call>", "</call>")  # of its markers, those that are special tokens',
        ),
        serves=False,
    ),
    Skeleton(
        "model",
        "model family",
        "ModelFamilySuite",
        f"{SERVE} FOLDER     # whose config.json names the architecture",
        (
            'spec = "$name"',
            "config = {",
            '    "vocab_size": 64,',
            '    "hidden_size": 32,',
            '    "intermediate_size": 48,',
            '    "num_hidden_layers": 2,',
            '    "num_attention_heads": 4,',
            '    "num_key_value_heads": 2,',
            '    "head_dim": 8,',
            '    "max_position_embeddings": 128,',
            '    "rms_norm_eps": 1e-6,',
            '    "rope_theta": 10000.0,',
            '    "hidden_act": "silu",',
            "}",
            'refused = ({"use_sliding_window": True},)',
        ),
        serves=False,
    ),
)

SKELETONS = {skeleton.kind: skeleton for skeleton in _ALL}
"""By the kind's name. A new kind of plugin needs an entry here and a file in ``templates``."""
