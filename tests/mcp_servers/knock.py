"""What the MCP conformance suite starts as "the client": it hands its address to the test that waits, and its outcome back."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    asked = {"url": sys.argv[2], "scenario": os.environ.get("MCP_CONFORMANCE_SCENARIO", "")}
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    door.sendall(json.dumps({**asked, "context": context}).encode() + b"\n")
    with door.makefile() as answer:
        sys.exit(answer.readline().strip() or None)
