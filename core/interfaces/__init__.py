"""The interfaces that plugins implement, and what the engine guarantees them: one file for each kind.

Importing this package imports no torch; tensors appear in annotations alone.
"""

from turnout.core.interfaces.admission import AdmissionPolicy, Load, Refusal
from turnout.core.interfaces.attention import (
    Attend,
    AttentionBackend,
    AttentionCapabilities,
    CapturableAttention,
    RotatingAttend,
)
from turnout.core.interfaces.compute import ComputeContext, FusedKernels, Runner
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.interfaces.figures import Figures
from turnout.core.interfaces.kv import KVBackend, KVCache, PoolSize, PrefixPins, Span
from turnout.core.interfaces.launcher import (
    ChannelKeys,
    Death,
    EngineAddress,
    EngineOrder,
    LaunchedEngine,
    Launcher,
)
from turnout.core.interfaces.logits_processor import LogitsProcessor, Row, ServedModel
from turnout.core.interfaces.models import ModelCapabilities, ModelFamily
from turnout.core.interfaces.observers import (
    ArrivalRecord,
    EngineRecord,
    Observer,
    PreemptionRecord,
    RequestRecord,
    StepRecord,
)
from turnout.core.interfaces.pooling import Pooling
from turnout.core.interfaces.proposer import DraftRequest, Proposal, Proposer
from turnout.core.interfaces.quantization import Adopter, ExportedLayer, Exporter, Quantizer
from turnout.core.interfaces.resources import Companion, Resources
from turnout.core.interfaces.router import Replica, Routable, Router, rendezvous
from turnout.core.interfaces.scheduling import Drop, Entry, LengthPredictor, SchedulingPolicy, Share
from turnout.core.types.output_format import Calls, JsonCall, NamedCall, OutputFormat, Region

__all__ = [
    "AdmissionPolicy",
    "Adopter",
    "ArrivalRecord",
    "Attend",
    "AttentionBackend",
    "AttentionCapabilities",
    "CachedBlock",
    "Calls",
    "CapturableAttention",
    "ChannelKeys",
    "Companion",
    "ComputeContext",
    "Death",
    "Decoding",
    "DraftRequest",
    "Drop",
    "EngineAddress",
    "EngineOrder",
    "EngineRecord",
    "Entry",
    "EvictionPolicy",
    "ExportedLayer",
    "Exporter",
    "Figures",
    "FusedKernels",
    "JsonCall",
    "KVBackend",
    "KVCache",
    "LaunchedEngine",
    "Launcher",
    "LengthPredictor",
    "Load",
    "LogitsProcessor",
    "ModelCapabilities",
    "ModelFamily",
    "NamedCall",
    "Observer",
    "OutputFormat",
    "PoolSize",
    "Pooling",
    "PreemptionRecord",
    "PrefixPins",
    "Proposal",
    "Proposer",
    "Quantizer",
    "Refusal",
    "Region",
    "Replica",
    "RequestRecord",
    "Resources",
    "RotatingAttend",
    "Routable",
    "Router",
    "Row",
    "Runner",
    "SchedulingPolicy",
    "ServedModel",
    "Share",
    "Span",
    "StepRecord",
    "rendezvous",
]
