"""How the families' chat templates write reasoning, text and calls, as their documentation has it.

Each is a template of its own, no more than what an answer needs.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FAMILIES", "Family"]


class Family(NamedTuple):
    """A family's chat template."""

    format: str
    """The name of the format that is found by it."""
    template: str
    end: str
    """What ends an answer."""
    reasons: bool = False
    """It writes reasoning."""
    talks: bool = True
    """It writes text before calls."""


CHATML = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.reasoning_content %}{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}%CALL%{% endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def chatml(call: str) -> str:
    return CHATML.replace("%CALL%", call)


HERMES = chatml(
    """{{ '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\n</tool_call>' }}"""
)
QWEN3_CODER = chatml(
    """{{ '\n<tool_call>\n<function=' + call.function.name + '>\n' }}
{%- for key, value in call.function.arguments.items() %}
{{- '<parameter=' + key + '>\n' }}
{{- value | tojson if value is mapping or (value is sequence and value is not string) else value | string }}
{{- '\n</parameter>\n' }}{% endfor %}{{ '</function>\n</tool_call>' }}"""
)
GLM = chatml(
    """{{ '\n<tool_call>' + call.function.name + '\n' }}
{%- for key, value in call.function.arguments.items() %}
{{- '<arg_key>' + key + '</arg_key>\n<arg_value>' }}{{ value if value is string else value | tojson }}
{{- '</arg_value>\n' }}{% endfor %}{{ '</tool_call>' }}"""
)
MINIMAX = chatml(
    """{% if loop.first %}{{ '\n<minimax:tool_call>\n' }}{% endif %}
{{- '<invoke name="' + call.function.name + '">\n' }}
{%- for key, value in call.function.arguments.items() %}
{{- '<parameter name="' + key + '">' }}{{ value if value is string else value | tojson }}
{{- '</parameter>\n' }}
{%- endfor %}{{ '</invoke>\n' }}{% if loop.last %}{{ '</minimax:tool_call>' }}{% endif %}"""
)
KIMI = chatml(
    """{% if loop.first %}<|tool_calls_section_begin|>{% endif %}
{{- '<|tool_call_begin|>functions.' + call.function.name + ':' }}{{ loop.index0 }}
{{- '<|tool_call_argument_begin|>' }}{{ call.function.arguments | tojson }}<|tool_call_end|>
{%- if loop.last %}<|tool_calls_section_end|>{% endif %}"""
)
DEEPSEEK_V31 = chatml(
    """{% if loop.first %}<｜tool▁calls▁begin｜>{% endif %}<｜tool▁call▁begin｜>{{ call.function.name }}
{{- '<｜tool▁sep｜>' }}{{ call.function.arguments | tojson }}<｜tool▁call▁end｜>
{%- if loop.last %}<｜tool▁calls▁end｜>{% endif %}"""
)
DEEPSEEK_V3 = chatml(
    """{% if loop.first %}<｜tool▁calls▁begin｜>{% endif %}
{{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\n```json\n' }}
{{- call.function.arguments | tojson }}{{ '\n```<｜tool▁call▁end｜>' }}{{ '\n' if not loop.last }}
{%- if loop.last %}<｜tool▁calls▁end｜>{% endif %}"""
)
MISTRAL = (
    chatml("""{{ '[TOOL_CALLS]' + call.function.name + '[ARGS]' }}{{ call.function.arguments | tojson }}""")
    .replace("<think>\n", "[THINK]")
    .replace("\n</think>\n\n", "[/THINK]")
)
MISTRAL_LIST = chatml(
    """{{ '[TOOL_CALLS] [' if loop.first else ', ' }}
{{- '{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}{{ '}' }}
{%- if loop.last %}]{% endif %}"""
)

LLAMA = """{%- for message in messages %}
{{- '%START%' + message.role + '%END%\n\n' }}{{ message.content or '' }}
%CALLS%
{{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '%START%assistant%END%\n\n' }}{% endif %}"""
JSON_CALLS = """{%- for call in message.tool_calls or [] %}{{ '; ' if not loop.first }}
{{- '{"name": "' + call.function.name + '", "parameters": ' }}{{ call.function.arguments | tojson }}{{ '}' }}
{%- endfor %}"""
PYTHON_CALLS = """{%- macro literal(value) %}
{%- if value is boolean or value is none %}{{ value }}
{%- elif value is mapping %}{{ '{' }}{% for key, each in value.items() %}{{ ', ' if not loop.first }}
{{- key | tojson }}: {{ literal(each) }}{% endfor %}{{ '}' }}
{%- elif value is string or value is number %}{{ value | tojson }}
{%- else %}[{% for each in value %}{{ ', ' if not loop.first }}{{ literal(each) }}{% endfor %}]
{%- endif %}{% endmacro %}
{%- macro python(call) %}{{ call.function.name + '(' }}
{%- for key, value in call.function.arguments.items() %}{{ ', ' if not loop.first }}
{{- key + '=' + literal(value) }}{% endfor %}){% endmacro %}
"""
PYTHON_LIST = """{%- if message.tool_calls %}[{% for call in message.tool_calls %}{{ ', ' if not loop.first }}
{{- python(call) }}{% endfor %}]{% endif %}"""
TOLD = "{%- if tools %}{{ 'Example: [func_name1(params_name1=params_value1), …]' }}{% endif %}"
TOLD4 = "{%- if tools %}{{ 'Use exact format: [func_name1(param1=value1), …]' }}{% endif %}"


def llama(calls: str, start: str = "<|start_header_id|>", end: str = "<|end_header_id|>") -> str:
    return LLAMA.replace("%START%", start).replace("%END%", end).replace("%CALLS%", calls)


HEADER4 = ("<|header_start|>", "<|header_end|>")
IN_MARKS = "{%- if message.tool_calls %}<|python_start|>X<|python_end|>{% endif %}"

GEMMA = """{%- macro argument(value) %}
{%- if value is string %}{{ '%QUOTE%' + value + '%QUOTE%' }}
{%- elif value is boolean %}{{ 'true' if value else 'false' }}
{%- elif value is mapping %}{{ '{' }}{% for key, each in value | dictsort %}{{ ',' if not loop.first }}
{{- key }}:{{ argument(each) }}{% endfor %}{{ '}' }}
{%- elif value is sequence %}[{% for each in value %}{{ ',' if not loop.first }}
{{- argument(each) }}{% endfor %}]
{%- else %}{{ value }}{% endif %}{% endmacro %}
{%- for message in messages %}
{{- '<start_of_turn>' + message.role + '\n' }}
{%- if message.reasoning_content %}{{ '<|channel>thought\n' + message.reasoning_content }}
{{- '\n<channel|>' }}{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}%OPEN%call:{{ call.function.name }}
{{- argument(call.function.arguments) }}%CLOSE%{% endfor %}
{{- '<end_of_turn>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>assistant\n' }}{% endif %}"""


def gemma(quote: str, opening: str, closing: str) -> str:
    return GEMMA.replace("%QUOTE%", quote).replace("%OPEN%", opening).replace("%CLOSE%", closing)


TOOL_CODE = PYTHON_CALLS + llama(
    "{%- for call in message.tool_calls or [] %}{{ '\n```tool_code\n' + python(call) + '\n```' }}{% endfor %}"
)
HARMONY = """{%- for message in messages %}
{{- '<|start|>' + message.role }}
{%- if message.role != 'assistant' %}<|message|>{{ message.content }}<|end|>
{%- else %}
{%- if message.reasoning_content %}{{ '<|channel|>analysis<|message|>' + message.reasoning_content }}
{{- '<|end|><|start|>assistant' }}{% endif %}
{%- if message.tool_calls %}{% set call = message.tool_calls[0] %}
{%- if message.content %}{{ '<|channel|>commentary<|message|>' + message.content }}
{{- '<|end|><|start|>assistant' }}{% endif %}
{{- '<|channel|>commentary to=functions.' + call.function.name + ' <|constrain|>json<|message|>' }}
{{- call.function.arguments | tojson }}<|call|>
{%- else %}{{ '<|channel|>final<|message|>' + message.content }}<|return|>{% endif %}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""

IM_END, EOT, TURN_END = "<|im_end|>\n", "<|eot_id|>", "<end_of_turn>"
FAMILIES = [
    Family("hermes", HERMES, IM_END, reasons=True),
    Family("qwen3-coder", QWEN3_CODER, IM_END, reasons=True),
    Family("glm-4.5", GLM, IM_END, reasons=True),
    Family("minimax-m2", MINIMAX, IM_END, reasons=True),
    Family("kimi-k2", KIMI, IM_END, reasons=True),
    Family("deepseek-v3.1", DEEPSEEK_V31, IM_END, reasons=True),
    Family("deepseek-v3", DEEPSEEK_V3, IM_END, reasons=True),
    Family("mistral", MISTRAL, IM_END, reasons=True),
    Family("mistral-list", MISTRAL_LIST, IM_END),
    Family("llama3-json", llama(JSON_CALLS), EOT, talks=False),
    Family("llama4-json", llama(IN_MARKS.replace("X", JSON_CALLS), *HEADER4), EOT, talks=False),
    Family("pythonic", TOLD + PYTHON_CALLS + llama(PYTHON_LIST), EOT, talks=False),
    Family("llama4-pythonic", TOLD4 + PYTHON_CALLS + llama(PYTHON_LIST, *HEADER4), EOT, talks=False),
    Family("gemma3-tool-code", TOOL_CODE, EOT),
    Family("functiongemma", gemma("<escape>", "<start_function_call>", "<end_function_call>"), TURN_END),
    Family("gemma4", gemma('<|"|>', "<|tool_call>", "<tool_call|>"), TURN_END, reasons=True),
    Family("harmony", HARMONY, "<|call|>", reasons=True),
]
