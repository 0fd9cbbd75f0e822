"""A stdio server without FastMCP, whose import takes two seconds: for tests about processes, not about the protocol.

python tests/mcp_servers/bare.py [hours]     with it, the opening hours are a resource
"""

import json
import os
import sys
import threading
import time


def schema(**properties):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


TOOLS = [
    {"name": "add", "description": "Add two numbers.", "inputSchema": schema(a="integer", b="integer")},
    {"name": "slow", "description": "Take a while.", "inputSchema": schema(seconds="number")},
    {"name": "environment", "description": "The names of the variables of this process.", "inputSchema": schema()},
]


def run(name, args):
    if name == "slow":
        time.sleep(args["seconds"])
        return "done"
    return args["a"] + args["b"] if name == "add" else sorted(os.environ)


def answer(number, **what):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **what}) + "\n")
    sys.stdout.flush()


def called(number, name, args):
    output = run(name, args)
    content = [{"type": "text", "text": json.dumps(output)}]
    wrapped = {"fastmcp": {"wrap_result": True}}  # as FastMCP says it
    answer(number, result={"content": content, "structuredContent": {"result": output}, "_meta": wrapped})


def main():
    able = {"tools": {}, "resources": {}} if sys.argv[1:] == ["hours"] else {"tools": {}}
    about = {"protocolVersion": "2025-11-25", "capabilities": able, "serverInfo": {"name": "bare", "version": "1"}}
    for line in sys.stdin:
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            answer(number, result=about)
        elif method == "tools/list":
            answer(number, result={"tools": TOOLS})
        elif method == "resources/list" and "resources" in able:
            answer(number, result={"resources": [{"uri": "shop://hours", "name": "hours"}]})
        elif method == "tools/call":
            asked = message["params"]
            given = (number, asked["name"], asked.get("arguments") or {})
            threading.Thread(target=called, args=given, daemon=True).start()
        elif number is not None:
            answer(number, error={"code": -32601, "message": "there is no such method"})


main()
