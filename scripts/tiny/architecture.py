"""The two shapes: the model, and the draft that speculates for it."""

from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config

CONTEXT_LENGTH = 2048

TARGET = Qwen2Config(
    hidden_size=256,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=832,
)

DRAFT = Qwen2Config(
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    intermediate_size=384,
)


def model_config(shape: Qwen2Config, tokenizer: PreTrainedTokenizerFast) -> Qwen2Config:
    """`shape` with what both share. float32 is the type to compute in, not the stored one."""
    return Qwen2Config(
        **shape.to_diff_dict()
        | {
            "vocab_size": len(tokenizer),
            "max_position_embeddings": CONTEXT_LENGTH,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "tie_word_embeddings": True,
            "eos_token_id": tokenizer.eos_token_id,
            "architectures": ["Qwen2ForCausalLM"],
            "dtype": "float32",
        }
    )


def generation_config(tokenizer: PreTrainedTokenizerFast) -> GenerationConfig:
    return GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=tokenizer.eos_token_id,
        do_sample=True,
        temperature=0.5,
        top_p=0.9,
        repetition_penalty=1.1,  # small models repeat themselves
    )
