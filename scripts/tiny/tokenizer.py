"""A byte-level BPE of 4,096 tokens, normalized and split as Qwen2 does it.

Other rules would suit code better, but transformers applies Qwen2's own to every model of that type,
whatever its tokenizer.json says.
"""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from turnout.scripts.tiny.architecture import CONTEXT_LENGTH

VOCAB_SIZE = 4096
END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = [END_OF_TEXT, "<|im_start|>", "<|im_end|>"]

# The model continues code and knows no roles: the contents are joined by line breaks,
# a system message becomes comment lines, and the text begins as documents did in
# training. It ends with a line break where the model is to go on, because a colon and
# the break after it are one token: having seen the colon alone, the model would stay in line.
CHAT_TEMPLATE = (
    "{{ eos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}"
    "{{ '# ' + message['content'].split('\\n') | join('\\n# ') }}"
    "{% else %}"
    "{{ message['content'] }}"
    "{% endif %}"
    "{% if not loop.last or add_generation_prompt %}{{ '\\n' }}{% endif %}"
    "{% endfor %}"
)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Learn the merges from `texts`; all 256 bytes are in the alphabet whatever they hold."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _wrap(tokenizer)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """tokenizer.json as it is written; AutoTokenizer must come to the same."""
    return _wrap(Tokenizer.from_file(str(folder / "tokenizer.json")))


def encode_documents(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> list[int]:
    """One stream: each document after an end-of-text token, and one more at the end."""
    end = tokenizer.eos_token_id
    encodings = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    return [*chain.from_iterable([end, *ids] for ids in encodings), end]


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        additional_special_tokens=SPECIAL_TOKENS[1:],
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_LENGTH,
        clean_up_tokenization_spaces=False,
        add_bos_token=False,
    )
