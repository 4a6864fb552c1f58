"""An MCP server over standard input and output, whose one tool tells the weather.

Protocol: https://modelcontextprotocol.io/specification, messages of JSON-RPC, one a line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {
    "name": "forecast",
    "description": "Tells the weather of a city.",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"name": "weather", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": about,
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"18 degrees in {params['arguments']['city']}"}]}
    return {}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked and "method" in asked:
        result = answer(asked["method"], asked.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
