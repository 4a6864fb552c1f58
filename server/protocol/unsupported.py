"""Refuses parameters of known APIs that would change the response but are not supported.

A response that silently ignored them would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout.core.errors import RequestError

__all__ = ["HARMLESS", "OF_POOLING", "refuse_unsupported"]

OPENAI: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "verbosity": ("medium",),
    "web_search_options": (),
}
VLLM: dict[str, tuple[Any, ...]] = {
    "chat_template": (),
    "documents": ([],),
    "guided_whitespace_pattern": (),
    "include_reasoning": (True,),
    "kv_transfer_params": ({},),
    "logits_processors": ([],),
    "logprob_token_ids": ([],),
    "max_repetition_pattern_size": (0,),
    "min_repetition_pattern_size": (0,),
    "mm_processor_kwargs": ({},),
    "prompt_embeds": (),
    "repetition_detection": (),
    "repetition_min_count": (0,),
    "spaces_between_special_tokens": (True,),
    "thinking_token_budget": (),
}
SGLANG: dict[str, tuple[Any, ...]] = {
    "custom_logit_processor": (),
    "custom_params": ({},),
    "ebnf": (),
    "extra_key": (),
    "input_ids": (),
    "lora_path": (),
    "no_stop_trim": (False,),
    "regex": (),
    "return_hidden_states": (False,),
    "return_routed_experts": (False,),
    "separate_reasoning": (True,),
    "session_params": ({},),
    "stop_regex": ([],),
}
LLAMA_CPP: dict[str, tuple[Any, ...]] = {
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "grammar": ("",),
    "json_schema": (),
    "lora": ([],),
    "mirostat": (0,),
    "n_indent": (0,),
    "n_predict": (),
    "n_probs": (0,),
    "post_sampling_probs": (False,),
    "reasoning_format": ("none",),
    "repeat_penalty": (1,),
    "response_fields": ([],),
    "return_progress": (False,),
    "return_tokens": (False,),
    "samplers": (),
    "t_max_predict_ms": (0, -1),
    "tfs_z": (1,),
    "timings_per_token": (False,),
    "top_n_sigma": (-1,),
    "typical_p": (1,),
    "xtc_probability": (0,),
}

OTHER_ENDPOINT: dict[str, tuple[Any, ...]] = {
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "max_completion_tokens": (),
    "reasoning_effort": ("none",),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
}
"""Parameters that one of completions and chat has and the other lacks."""

HARMLESS = {**OPENAI, **VLLM, **SGLANG, **LLAMA_CPP, **OTHER_ENDPOINT}
"""For each unsupported parameter, the values that ask for nothing and so are accepted; None always is."""
OF_POOLING: dict[str, tuple[Any, ...]] = {
    "activation": (True,),
    "dimensions": (),
    "embedding_type": ("float",),
    "embedding_types": (["float"],),
    "late_chunking": (False,),
    "max_chunks_per_doc": (),
    "mm_processor_kwargs": ({},),
    "rank_fields": (["text"],),
    "raw_scores": (False,),
    "softmax": (True,),
    "truncate": (False,),
}
"""Of requests that generate nothing: Cohere's, Jina's, vLLM's and text-embeddings-inference's."""
SWITCHES = {"tools": "tool_choice", "functions": "function_call"}
"""Parameters that ask for nothing while another parameter is "none"."""
HINTS = {
    "activation": "use_activation",
    "ebnf": "structured_outputs",
    "embedding_type": "encoding_format",
    "embedding_types": "encoding_format",
    "grammar": "structured_outputs",
    "json_schema": "response_format",
    "max_chunks_per_doc": "max_tokens_per_doc",
    "max_completion_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "n_probs": "logprobs",
    "no_stop_trim": "include_stop_str_in_output",
    "extra_key": "cache_salt",
    "regex": "structured_outputs",
    "repeat_penalty": "repetition_penalty",
    "raw_scores": "use_activation",
    "return_tokens": "return_token_ids",
    "softmax": "use_activation",
    "top_logprobs": "logprobs",
    "truncate": "truncate_prompt_tokens",
}
"""The parameter of this API that does what another server's does."""


def refuse_unsupported(fields: Mapping[str, Any], harmless: Mapping[str, tuple[Any, ...]] = HARMLESS) -> None:
    """Raise RequestError that names the first unsupported parameter, of those in `harmless`."""
    for name, value in fields.items():
        if name not in harmless or value is None or value in harmless[name]:
            continue
        if fields.get(SWITCHES.get(name, "")) != "none":
            hint = f"; this server has {HINTS[name]}" if name in HINTS else ""
            raise RequestError(f"{name} is not supported{hint}", name)
