"""Turnout's own policies, registered through the same hooks as all others."""

from __future__ import annotations

from turnout.core.registry.hookspecs import Flag, Register, hookimpl

turnout_hook_api = 1


@hookimpl
def register_schedulers(register: Register) -> None:
    register("deadline", "turnout.plugins.schedulers.deadline:Deadline")
    register("fair", "turnout.plugins.schedulers.fair:Fair")
    register("fcfs", "turnout.plugins.schedulers.fcfs:Fcfs")
    register("hrrn", "turnout.plugins.schedulers.hrrn:Hrrn")
    register("ljf", "turnout.plugins.schedulers.ljf:Ljf")
    register("lpm", "turnout.plugins.schedulers.lpm:LongestPrefixMatch")
    register("mlfq", "turnout.plugins.schedulers.mlfq:Mlfq")
    register("prefill-first", "turnout.plugins.schedulers.prefill_first:PrefillFirst")
    register("priority", "turnout.plugins.schedulers.priority:Priority")
    register("sarathi", "turnout.plugins.schedulers.sarathi:Sarathi")
    register("sjf", "turnout.plugins.schedulers.sjf:Sjf")
    register("srpt", "turnout.plugins.schedulers.srpt:Srpt")
    register("static", "turnout.plugins.schedulers.static:Static")


@hookimpl
def register_length_predictors(register: Register) -> None:
    register("history", "turnout.plugins.predictors.history:History")
    register("max_tokens", "turnout.plugins.predictors.max_tokens:MaxTokens")


@hookimpl
def register_admissions(register: Register) -> None:
    register("none", "turnout.plugins.admissions.none:NoAdmission")
    register("queue-time", "turnout.plugins.admissions.queue_time:QueueTime")


@hookimpl
def register_kv_backends(register: Register) -> None:
    dtype = Flag("kv_cache_dtype", "dtype")
    register("contiguous", "turnout.plugins.kv_backends.contiguous.backend:Contiguous", flags=[dtype])
    register("none", "turnout.plugins.kv_backends.none.backend:NoKV")
    register(
        "paged",
        "turnout.plugins.kv_backends.paged.backend:Paged",
        flags=[Flag("block_size", "block_size"), dtype],
    )


@hookimpl
def register_evictions(register: Register) -> None:
    register("cost", "turnout.plugins.evictions.cost:Cost")
    register("lfu", "turnout.plugins.evictions.lfu:Lfu")
    register("lru", "turnout.plugins.evictions.lru:Lru")


@hookimpl
def register_quantizers(register: Register) -> None:
    register("awq", "turnout.plugins.quantization.formats.readers:Awq")
    register("bnb-fp4", "turnout.plugins.quantization.schemes.bnb:BnbFp4")
    register("bnb-int8", "turnout.plugins.quantization.schemes.bnb:BnbInt8")
    register("bnb-nf4", "turnout.plugins.quantization.schemes.bnb:BnbNf4")
    register("compressed-tensors", "turnout.plugins.quantization.formats.readers:CompressedTensors")
    register("fp8", "turnout.plugins.quantization.schemes.fp8:Fp8")
    register("fp8wo", "turnout.plugins.quantization.schemes.fp8:Fp8WeightOnly")
    register("gguf", "turnout.plugins.quantization.formats.readers:Gguf")
    register("gptq", "turnout.plugins.quantization.formats.readers:Gptq")
    register("int4wo", "turnout.plugins.quantization.schemes.int4:Int4WeightOnly")
    register("int8", "turnout.plugins.quantization.schemes.int8:Int8")
    register("int8wo", "turnout.plugins.quantization.schemes.int8:Int8WeightOnly")
    register("mxfp4", "turnout.plugins.quantization.formats.readers:Mxfp4")
    register("none", "turnout.plugins.quantization.schemes.none:NoQuantization")


@hookimpl
def register_decodings(register: Register) -> None:
    register("beam", "turnout.plugins.decoding.beam.strategy:Beam")
    register("greedy", "turnout.plugins.decoding.greedy:Greedy")
    register("sampling", "turnout.plugins.decoding.sampling:Sampling")
    register(
        "speculative",
        "turnout.plugins.decoding.speculation.strategy:Speculative",
        flags=[
            Flag("spec_draft", "draft", chooses=True),
            Flag("spec_ngram", "ngram", chooses=True),
            Flag("spec_tokens", "k", alone="says how far to draft, but nothing drafts"),
        ],
    )


@hookimpl
def register_proposers(register: Register) -> None:
    register("draft-model", "turnout.plugins.proposers.draft_model:DraftModel")
    register("ngram", "turnout.plugins.proposers.ngram:NGram")


@hookimpl
def register_routers(register: Register) -> None:
    register("least-loaded", "turnout.plugins.routers.least_loaded:LeastLoaded")
    register("power-of-two", "turnout.plugins.routers.power_of_two:PowerOfTwo")
    register("prefix-affinity", "turnout.plugins.routers.prefix_affinity:PrefixAffinity")
    register("round-robin", "turnout.plugins.routers.round_robin:RoundRobin")
    register("score", "turnout.plugins.routers.score:Score")
    register("session-affinity", "turnout.plugins.routers.session_affinity:SessionAffinity")


@hookimpl
def register_launchers(register: Register) -> None:
    register("local", "turnout.plugins.launchers.local:Local")
    register("ray", "turnout.plugins.launchers.ray_cluster:RayCluster")
    register("static", "turnout.plugins.launchers.static:Static")


@hookimpl
def register_poolings(register: Register) -> None:
    register("cls", "turnout.plugins.poolings.cls:Cls")
    register("last", "turnout.plugins.poolings.last:Last")
    register("max", "turnout.plugins.poolings.max:Max")
    register("mean", "turnout.plugins.poolings.mean:Mean")
    register("sqrt-mean", "turnout.plugins.poolings.mean:SqrtMean")
    register("token", "turnout.plugins.poolings.token:Token")
    register("weighted-mean", "turnout.plugins.poolings.mean:WeightedMean")


@hookimpl
def register_logits_processors(register: Register) -> None:
    """Registers them in the order in which they apply; masks apply after all others, of all plugins."""
    register("penalties", "turnout.plugins.logits_processors.penalties:Penalties")
    register("logit_bias", "turnout.plugins.logits_processors.logit_bias:LogitBias")
    register("min_tokens", "turnout.plugins.logits_processors.min_tokens:MinTokens")
    register("bad_words", "turnout.plugins.logits_processors.bad_words:BadWords")
    register("allowed_token_ids", "turnout.plugins.logits_processors.allowed_token_ids:AllowedTokenIds")
    register("structured_output", "turnout.plugins.logits_processors.structured_output:StructuredOutput")


@hookimpl
def register_models(register: Register) -> None:
    register("bert", "turnout.models.families.encoders.bert:Bert")
    register("deepseek-v2", "turnout.models.families.deepseek:DeepseekV2")
    register("deepseek-v3", "turnout.models.families.deepseek:DeepseekV3")
    register("electra", "turnout.models.families.encoders.bert:Electra")
    register("distilbert", "turnout.models.families.encoders.bert:DistilBert")
    register("gemma2", "turnout.models.families.gemma:Gemma2")
    register("gemma3", "turnout.models.families.gemma:Gemma3")
    register("gemma3-text", "turnout.models.families.text_parts:Gemma3Text")
    register("gpt2", "turnout.models.families.gpt2:Gpt2")
    register("gpt-oss", "turnout.models.families.gpt_oss:GptOss")
    register("granite", "turnout.models.families.granite:Granite")
    register("llama", "turnout.models.families.llama:Llama")
    register("ministral", "turnout.models.families.mistral:Ministral")
    register("mistral", "turnout.models.families.mistral:Mistral")
    register("mistral3-text", "turnout.models.families.text_parts:Mistral3Text")
    register("mixtral", "turnout.models.families.mistral:Mixtral")
    register("modernbert", "turnout.models.families.encoders.modernbert:ModernBert")
    register("olmo2", "turnout.models.families.olmo2:Olmo2")
    register("phi3", "turnout.models.families.phi3:Phi3")
    register("qwen2", "turnout.models.families.qwen2:Qwen2")
    register("qwen2-moe", "turnout.models.families.qwen2:Qwen2Moe")
    register("qwen2-vl-text", "turnout.models.families.text_parts:Qwen2VLText")
    register("qwen3", "turnout.models.families.qwen3:Qwen3")
    register("qwen3-moe", "turnout.models.families.qwen3:Qwen3Moe")
    register("qwen3-vl-text", "turnout.models.families.text_parts:Qwen3VLText")
    register("roberta", "turnout.models.families.encoders.bert:Roberta")
    register("smollm3", "turnout.models.families.smollm3:SmolLM3")
    register("transformers", "turnout.models.transformers_adapter:TransformersAdapter")


@hookimpl
def register_formats(register: Register) -> None:
    register("deepseek-v3", "turnout.plugins.formats.deepseek:deepseek_v3")
    register("deepseek-v3.1", "turnout.plugins.formats.deepseek:deepseek_v31")
    register("functiongemma", "turnout.plugins.formats.gemma:function_gemma")
    register("gemma3-tool-code", "turnout.plugins.formats.gemma:gemma3_tool_code")
    register("gemma4", "turnout.plugins.formats.gemma:gemma4")
    register("glm-4.5", "turnout.plugins.formats.glm:glm45")
    register("harmony", "turnout.plugins.formats.harmony:harmony")
    register("hermes", "turnout.plugins.formats.hermes:hermes")
    register("kimi-k2", "turnout.plugins.formats.kimi:kimi_k2")
    register("llama3-json", "turnout.plugins.formats.llama:llama3_json")
    register("llama4-json", "turnout.plugins.formats.llama:llama4_json")
    register("llama4-pythonic", "turnout.plugins.formats.llama:llama4_pythonic")
    register("minimax-m2", "turnout.plugins.formats.minimax:minimax_m2")
    register("mistral", "turnout.plugins.formats.mistral:mistral")
    register("mistral-list", "turnout.plugins.formats.mistral:mistral_list")
    register("pythonic", "turnout.plugins.formats.llama:pythonic")
    register("qwen3-coder", "turnout.plugins.formats.qwen:qwen3_coder")
    register("thinking", "turnout.plugins.formats.hermes:thinking")
