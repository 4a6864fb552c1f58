"""Every bound on what a client may send or make the server do, in one place.

docs/reference/limits.md is written from this module. A bound that an option sets has its default here and its
option in `turnout.config`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "BACKGROUND",
    "BACKGROUND_TOKENS",
    "BAD_WORDS",
    "BAD_WORDS_TEXT",
    "BATCHES",
    "BATCHES_KEPT",
    "BATCH_IN_FLIGHT",
    "BATCH_LINE",
    "BATCH_LINES",
    "BIASES",
    "BIAS_TEXTS",
    "BODIES_BEFORE",
    "BODY",
    "BODY_SECONDS",
    "CHOICES",
    "CONFIG_FILE",
    "CONFIG_VALUES",
    "CONNECTIONS",
    "COPIES",
    "DEPTH",
    "DETOKENIZED",
    "EVENTS_KEPT",
    "EXTRA_ARGS",
    "FIELDS",
    "FILE",
    "FILES",
    "FILES_BYTES",
    "FILE_NAME",
    "FORM",
    "FORMS_SLOW",
    "FORMS_WAITING",
    "FORM_CHOICES",
    "FORM_FIELDS",
    "FORM_MASKS",
    "FORM_MEMORY",
    "FORM_ROOM",
    "FORM_SECONDS",
    "FORM_TEXT",
    "HEADERS",
    "HEADER_BYTES",
    "HEADER_SECONDS",
    "KEEP_ALIVE",
    "KEY_NAMES",
    "LISTED_TOKENS",
    "LOAD_SECONDS",
    "LOGPROBS",
    "LOGPROB_ENTRIES",
    "MESSAGES",
    "NAME",
    "NOTES",
    "NOTES_TEXT",
    "PIPELINED",
    "POOLED",
    "PORTION",
    "PREFIX_MARKS",
    "PREPARED",
    "PROMPTS",
    "PROMPT_TOKENS",
    "READING_SECONDS",
    "REPEATED",
    "REPLICAS",
    "REQUEST_ID",
    "REQUEST_MEMORY",
    "RESTART_WAIT",
    "RETRIES",
    "SEQUENCES",
    "STOP_LENGTH",
    "STOP_STRINGS",
    "STOP_TOKENS",
    "STORED_BYTES",
    "STORED_DAYS",
    "STORED_RESPONSES",
    "TEMPLATE_MEMORY",
    "TEMPLATE_SECONDS",
    "TEMPLATE_TEXT",
    "TEXTS",
    "TEXTS_BEFORE",
    "TOKENIZED",
    "TOKENIZING_MEMORY",
    "TOKENIZING_SECONDS",
    "TOOLS",
    "TRACE_JOBS",
    "TRACE_JSON",
    "TRACE_LINE",
    "TRACE_TOKENS",
    "TURN_SECONDS",
    "UNREAD",
    "UPLOADS",
    "VALUES",
    "WAITING",
    "WAITING_SERVERS",
    "WORKER_MESSAGE",
    "Limit",
    "all_limits",
]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A bound, and what a client is told that exceeds it."""

    most: float
    """The largest value that is accepted."""
    unit: str
    """What `most` counts: bytes, characters, tokens, seconds, requests."""
    what: str
    """What is bounded, as a phrase: "stop strings of a request"."""
    answer: str
    """What happens beyond it: the HTTP status and the parameter that the error names, or what is ended."""
    option: str = ""
    """The option that changes it; empty if none does."""

    @property
    def whole(self) -> int:
        """`most` as an integer."""
        return int(self.most)

    @property
    def amount(self) -> str:
        """`most` with its unit, to be read: "32 MiB"."""
        if self.unit == "bytes":
            for size, name in ((2**20, "MiB"), (2**10, "KiB")):
                if self.most % size == 0:
                    return f"{self.most / size:,.0f} {name}"
        return f"{self.most:,.10g} {self.unit}"


CHOICES = Limit(
    most=128, unit="choices", what="choices of a prompt (`n`, `best_of`, `beam_width`)", answer="400, `n`"
)
LOGPROBS = Limit(
    most=20, unit="tokens", what="most likely tokens reported at a position", answer="400, `logprobs`"
)
PROMPTS = Limit(most=2048, unit="prompts", what="prompts of a request", answer="400, `prompt`")
POOLED = Limit(most=2048, unit="texts", what="texts of a request that are pooled", answer="400, the field")
STOP_STRINGS = Limit(most=32, unit="strings", what="stop strings of a request", answer="400, `stop`")
TOOLS = Limit(most=512, unit="tools", what="tools of a request", answer="400, `tools`")
STOP_LENGTH = Limit(most=4096, unit="characters", what="a stop string", answer="400, `stop`")
BAD_WORDS = Limit(most=4096, unit="words", what="bad words of a request", answer="400, `bad_words`")
BAD_WORDS_TEXT = Limit(
    most=65_536, unit="characters", what="bad words of a request together", answer="400, `bad_words`"
)
BIASES = Limit(most=4096, unit="tokens", what="tokens in `logit_bias`", answer="400, `logit_bias`")
BIAS_TEXTS = Limit(
    most=65_536,
    unit="characters",
    what="texts in `logit_bias` of `/infill` together",
    answer="400, `logit_bias`",
)
LISTED_TOKENS = Limit(
    most=2**18, unit="tokens", what="tokens in `allowed_token_ids`", answer="400, `allowed_token_ids`"
)
STOP_TOKENS = Limit(
    most=4096, unit="tokens", what="tokens in `stop_token_ids`", answer="400, `stop_token_ids`"
)
REQUEST_ID = Limit(
    most=512, unit="characters", what="the header `X-Request-Id`", answer="400, `x-request-id`"
)
PROMPT_TOKENS = Limit(most=2**21, unit="tokens", what="prompts of a request together", answer="400, `prompt`")
SEQUENCES = Limit(most=4096, unit="choices", what="choices of all prompts of a request", answer="400, `n`")
REPEATED = Limit(
    most=2**24,
    unit="characters or tokens",
    what="prompts that a response repeats, once for each choice (`echo`, `return_token_ids`)",
    answer="400, the parameter",
)
COPIES = Limit(
    most=2**20,
    unit="entries",
    what="entries of `logit_bias`, `allowed_token_ids`, `stop_token_ids` and `bad_words`, for each prompt",
    answer="400, `prompt`",
)
LOGPROB_ENTRIES = Limit(
    most=2**22,
    unit="entries",
    what="log-probabilities of a response: of each token one, and of each of the most likely",
    answer="400, `logprobs` or `prompt_logprobs`",
)
TOKENIZED = Limit(
    most=2**20,
    unit="bytes",
    what="text to `/tokenize`, and to `/v1/messages/count_tokens` where it exceeds the context, too",
    answer="400, `prompt`",
)
DETOKENIZED = Limit(most=2**18, unit="tokens", what="tokens to `/detokenize`", answer="400, `tokens`")
TEXTS = Limit(
    most=1024,
    unit="texts",
    what="texts that wait to be tokenized",
    answer="503 with `Retry-After`",
)
TEXTS_BEFORE = Limit(
    most=2**21,
    unit="characters",
    what="long texts that wait to be tokenized before another: those that are shorter or came first",
    answer="503 with `Retry-After`",
)
BODIES_BEFORE = Limit(
    most=64 * 2**20,
    unit="bytes",
    what="bodies that wait to be decoded before another, estimated as they are in memory",
    answer="503 with `Retry-After`",
)
TURN_SECONDS = Limit(
    most=10,
    unit="seconds",
    what="wait of a body or a long text for smaller ones",
    answer="503 with `Retry-After`",
)
TEMPLATE_SECONDS = Limit(
    most=2,
    unit="seconds",
    what="processor time in which the chat template renders a conversation",
    answer="400, `messages`",
)
TEMPLATE_MEMORY = Limit(
    most=512 * 2**20,
    unit="bytes",
    what="memory in which the chat template renders a conversation",
    answer="400, `messages`",
)
TOKENIZING_SECONDS = Limit(
    most=2,
    unit="seconds",
    what="processor time to tokenize a text, and as much more for each MiB, by rules of a model's tokenizer "
    "that are not known to be quick",
    answer="400, `prompt`",
)
TOKENIZING_MEMORY = Limit(
    most=2 * 2**30,
    unit="bytes",
    what="memory to tokenize a text by such rules",
    answer="400, `prompt`",
)
TEMPLATE_TEXT = Limit(
    most=2**25, unit="characters", what="a conversation, rendered", answer="400, `messages`"
)
NAME = Limit(
    most=256,
    unit="characters",
    what="`user` and `cache_salt`",
    answer="served; a digest of the name stands for it",
)
MESSAGES = Limit(most=16_384, unit="messages", what="messages of a chat", answer="400, `messages`")
NOTES = Limit(most=16, unit="pairs", what="`metadata` of a response or a batch", answer="400, `metadata`")
NOTES_TEXT = Limit(
    most=9216,
    unit="characters",
    what="`metadata` of a response or a batch, names and texts together",
    answer="400, `metadata`",
)
FIGURES = Limit(
    most=32,
    unit="names",
    what="counters and gauges of a plugin",
    answer="none of them is in `/metrics`, and the log says so",
)
RETRIES = Limit(
    most=64,
    unit="steps",
    what="steps in a row in which a decoding strategy asks for a request again (`Retry`)",
    answer="500 for the request",
)
BODY = Limit(most=32 * 2**20, unit="bytes", what="body of a request", answer="413", option="--max-body-size")
VALUES = Limit(
    most=2_500_000,
    unit="values",
    what="values of a body: its commas, 8 times its quotation marks and 16 times its brackets",
    answer="413",
)
DEPTH = Limit(most=64, unit="levels", what="lists and objects within each other in a body", answer="400")
FIELDS = Limit(most=256, unit="fields", what="fields of a body", answer="400")
EXTRA_ARGS = Limit(most=64, unit="parameters", what="parameters in `vllm_xargs`", answer="400, `vllm_xargs`")
REQUEST_MEMORY = Limit(
    most=256 * 2**20,
    unit="bytes",
    what="memory of all requests in flight, estimated: bodies, prompts and what is generated",
    answer="503 with `Retry-After` for the largest whose body is still being sent, or whose answer gathered",
    option="--request-memory",
)
BODY_SECONDS = Limit(
    most=30, unit="seconds", what="time to send a body, and a second more for each 16 KiB", answer="408"
)
UNREAD = Limit(
    most=64 * 2**20,
    unit="bytes",
    what="what was generated and is not read yet, of all streams, estimated",
    answer="the stream that has left most unread ends with an error",
)
HEADER_BYTES = Limit(most=64 * 2**10, unit="bytes", what="request line and headers", answer="431")
HEADERS = Limit(most=128, unit="headers", what="headers of a request", answer="431")
HEADER_SECONDS = Limit(most=30, unit="seconds", what="time to send the headers of a request", answer="408")
PIPELINED = Limit(
    most=16,
    unit="requests",
    what="requests that a connection sends ahead of their responses",
    answer="the connection is closed",
)
KEEP_ALIVE = Limit(
    most=75,
    unit="seconds",
    what="time that a connection stays open without a request",
    answer="the connection is closed",
    option="--keep-alive-timeout",
)
READING_SECONDS = Limit(
    most=60,
    unit="seconds",
    what="time in which a client reads any of what the server has for it",
    answer="the connection is closed and the request aborted",
)
CONNECTIONS = Limit(
    most=16384,
    unit="connections",
    what="open connections, as far as the system grants descriptors",
    answer="the connection that has waited longest for a request is closed",
    option="--max-connections",
)
REPLICAS = Limit(
    most=64,
    unit="engines",
    what="replicas of a server",
    answer="start-up says so; 409 where one is added",
    option="--replicas",
)
WORKER_MESSAGE = Limit(
    most=64 * 2**20,
    unit="bytes",
    what="a message to a worker, other than a frame for its ranks",
    answer="the connection is closed",
)
WAITING_SERVERS = Limit(
    most=16,
    unit="servers",
    what="servers that wait for a worker's engine",
    answer="the server's start fails, and says so",
)
PREFIX_MARKS = Limit(
    most=65_536,
    unit="prefixes",
    what="prefixes of a replica that routers are told of",
    answer="the router does not learn of further ones",
)
WAITING = Limit(
    most=4096,
    unit="requests",
    what="requests that wait, besides those that run",
    answer="503 with `Retry-After`",
    option="--max-waiting",
)
PORTION = Limit(
    most=224,
    unit="choices",
    what="choices of all requests with several prompts that an engine has at once, an equal part of each: "
    "seven eighths of what it serves",
    answer="served; their other prompts wait, and other requests come between",
    option="--max-num-seqs",
)
KEY_NAMES = Limit(
    most=256,
    unit="names",
    what="API keys with counters of their own in `/metrics`",
    answer="those beyond have none",
)
FILE = Limit(most=256 * 2**20, unit="bytes", what="an uploaded file", answer="413, `file`")
FILE_NAME = Limit(most=255, unit="characters", what="the name of an uploaded file", answer="it is cut off")
FILES = Limit(most=10_000, unit="files", what="uploaded files", answer="507, for new batches, too")
FILES_BYTES = Limit(
    most=4 * 2**30,
    unit="bytes",
    what="files of all clients together",
    answer="507 for an upload or a new batch",
    option="--batch-dir-size",
)
UPLOADS = Limit(most=4, unit="uploads", what="files that are sent at once", answer="503 with `Retry-After`")
FORM_FIELDS = Limit(
    most=16 * 2**10, unit="bytes", what="fields and headers of an upload, 64 for each part", answer="413"
)
BATCHES = Limit(most=64, unit="batches", what="batches that have not ended", answer="503 with `Retry-After`")
BATCHES_KEPT = Limit(most=10_000, unit="batches", what="batches", answer="the oldest that has ended goes")
BATCH_LINES = Limit(most=50_000, unit="lines", what="lines of a batch", answer="the batch fails")
BATCH_LINE = Limit(most=4 * 2**20, unit="bytes", what="a line of a batch", answer="the batch fails")
BATCH_IN_FLIGHT = Limit(
    most=8,
    unit="lines",
    what="lines of a batch that are served at once",
    answer="the others wait",
    option="--batch-in-flight",
)
STORED_RESPONSES = Limit(
    most=10_000,
    unit="responses",
    what="stored responses",
    answer="those go that were used longest ago",
    option="--response-store-entries",
)
STORED_BYTES = Limit(
    most=256 * 2**20,
    unit="bytes",
    what="stored responses together",
    answer="those go that were used longest ago",
    option="--response-store-size",
)
STORED_DAYS = Limit(
    most=30,
    unit="days",
    what="age of a stored response since its last use",
    answer="it goes",
    option="--response-store-days",
)
BACKGROUND = Limit(
    most=256,
    unit="responses",
    what="responses in the background that have not ended",
    answer="503 with `Retry-After`",
)
BACKGROUND_TOKENS = Limit(
    most=1024,
    unit="tokens",
    what="tokens that a response in the background is expected to have, if `max_output_tokens` says no less: "
    "prompts and answers of those that an engine has at once take seven eighths of its KV memory",
    answer="served; the others wait, and other requests come between",
)
EVENTS_KEPT = Limit(
    most=32 * 2**20,
    unit="bytes",
    what="events of streamed responses in the background that have ended",
    answer="those of the response that ended first go",
)
FORM = Limit(
    most=256 * 2**10,
    unit="bytes",
    what="form of structured output: a schema, an expression, a grammar, or its choices together",
    answer="400, `structured_outputs`",
)
FORM_CHOICES = Limit(most=10_000, unit="choices", what="`guided_choice`", answer="400, `structured_outputs`")
FORM_TEXT = Limit(
    most=16 * 2**10, unit="bytes", what="text that a form spells out", answer="400, `structured_outputs`"
)
FORM_SECONDS = Limit(
    most=3,
    unit="seconds",
    what="processor time to compile a form",
    answer="400, `structured_outputs`",
    option="--logits-processor",
)
FORM_MEMORY = Limit(
    most=512 * 2**20, unit="bytes", what="memory to compile a form", answer="400, `structured_outputs`"
)
PREPARED = Limit(
    most=1024,
    unit="requests",
    what="requests that wait for their forms of structured output",
    answer="503",
)
FORMS_WAITING = Limit(most=128, unit="forms", what="forms that wait to be compiled", answer="503")
FORMS_SLOW = Limit(
    most=4,
    unit="forms",
    what="forms that wait to be compiled and have taken more than 0.25 s",
    answer="503",
)
FORM_ROOM = Limit(
    most=60,
    unit="seconds",
    what="wait of a request that goes on in another engine, where the system has no room to compile its form",
    answer="503, or the end of the stream",
)
FORM_MASKS = Limit(
    most=0.5,
    unit="seconds",
    what="processor time that a form may take at tokens that take over 20 ms each",
    answer="400, or the end of the stream",
)
RESTART_WAIT = Limit(
    most=600,
    unit="seconds",
    what="wait of a request for an engine that takes the place of one that died",
    answer="503, and until it is ready for each new request",
)

LOAD_SECONDS = Limit(
    most=600,
    unit="seconds",
    what="loading of a model on demand, and the wait of a request for it",
    answer="503 with `Retry-After`",
    option="--load-timeout",
)

CONFIG_FILE = Limit(most=256 * 2**10, unit="bytes", what="a config file", answer="the command refuses it")
CONFIG_VALUES = Limit(
    most=10_000,
    unit="values",
    what="values of a config file, those that an alias repeats counted each time",
    answer="the command refuses it",
)
TRACE_LINE = Limit(most=16 * 2**20, unit="bytes", what="a line of a trace", answer="the command refuses it")
TRACE_JSON = Limit(
    most=2 * 2**30, unit="bytes", what="a trace that is one JSON list", answer="the command refuses it"
)
TRACE_TOKENS = Limit(
    most=2**24,
    unit="tokens",
    what="prompt, output and block of a trace's job, and a length that a generator draws",
    answer="the command refuses it",
)
TRACE_JOBS = Limit(
    most=10_000_000, unit="jobs", what="a trace, and what generators make", answer="the command refuses it"
)


def all_limits() -> dict[str, Limit]:
    """Returns every limit by its name in this module, in the order in which they stand."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}
