"""The model families that ship with Turnout. Importing them imports no torch."""

from turnout.models.families.deepseek import DeepseekV2, DeepseekV3
from turnout.models.families.encoders.bert import Bert, DistilBert, Electra, Roberta
from turnout.models.families.encoders.modernbert import ModernBert
from turnout.models.families.gemma import Gemma2, Gemma3
from turnout.models.families.gpt2 import Gpt2
from turnout.models.families.gpt_oss import GptOss
from turnout.models.families.granite import Granite
from turnout.models.families.llama import Llama
from turnout.models.families.mistral import Ministral, Mistral, Mixtral
from turnout.models.families.olmo2 import Olmo2
from turnout.models.families.phi3 import Phi3
from turnout.models.families.qwen2 import Qwen2, Qwen2Moe
from turnout.models.families.qwen3 import Qwen3, Qwen3Moe
from turnout.models.families.smollm3 import SmolLM3
from turnout.models.families.text_parts import Gemma3Text, Mistral3Text, Qwen2VLText, Qwen3VLText

__all__ = [
    "Bert",
    "DeepseekV2",
    "DeepseekV3",
    "DistilBert",
    "Electra",
    "Gemma2",
    "Gemma3",
    "Gemma3Text",
    "Gpt2",
    "GptOss",
    "Granite",
    "Llama",
    "Ministral",
    "Mistral",
    "Mistral3Text",
    "Mixtral",
    "ModernBert",
    "Olmo2",
    "Phi3",
    "Qwen2",
    "Qwen2Moe",
    "Qwen2VLText",
    "Qwen3",
    "Qwen3Moe",
    "Qwen3VLText",
    "Roberta",
    "SmolLM3",
]
