"""JSON Schema of `kaname.yaml`: for the check, and for editors (`kaname config schema`)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..memory.retention import STATUSES
from .policy_schema import (
    CACHE,
    FALLBACK,
    FLOW,
    GUARDRAILS,
    LIMITS,
    PERMISSIONS,
    PRIVACY,
    RESULTS,
    TEXTS,
    TIME,
    TOOL_SEARCH,
    field_of,
    map_of,
    mapping_of,
)
from .work_schema import NOTIFY, SCHEDULE, TRIGGER

_PLAIN = {"integer", "number", "boolean"}


_OAUTH = mapping_of(
    "How to sign in.",
    {
        "scopes": field_of(["string", "array"], "what to ask for"),
        "client_id": field_of("string", "of a client that was registered before"),
        "client_secret": field_of("string", "better from the environment"),
        "client_metadata_url": field_of("string"),
        "issuer": field_of("string", "with client_credentials: the only server that the secret is sent to"),
        "callback_port": field_of("integer", "where the browser comes back to, on this machine"),
        "grant": field_of(
            "string", "browser, or client_credentials for a program without a person", enum=["browser", "client_credentials"]
        ),
    },
)
_SERVER = mapping_of(
    "A tool server (MCP): a command to start, or an address.",
    {
        "command": field_of("string", "the program to start"),
        "args": field_of("array", "its arguments", items={"type": ["string", "number"]}),
        "env": field_of(
            "object", "variables beside the usual ones", additionalProperties={"type": ["string", "number", "boolean"]}
        ),
        "cwd": field_of("string", "the folder to start it in"),
        "url": field_of("string", "the address of a running server: http:// or https://"),
        "headers": field_of("object", "HTTP headers", additionalProperties={"type": "string"}),
        "type": field_of("string", enum=["stdio", "http", "streamable-http", "streamable_http", "sse"]),
        "transport": field_of("string", enum=["stdio", "http", "streamable-http", "streamable_http", "sse"]),
        "timeout": field_of([*TIME, "null"], "of a call: seconds, or a text such as 30s; null: none"),
        "start_timeout": field_of(TIME, "until it is ready"),
        "required": field_of("boolean", "nothing runs without it"),
        "disabled": field_of("boolean"),
        "library": field_of("boolean", "its resources and prompts as tools for the model"),
        "tools": {**TEXTS, "description": "those that are wanted, if not all"},
        "exclude_tools": {**TEXTS, "description": "those that are not wanted"},
        "roots": {**TEXTS, "description": "folders that the server is told of"},
        "sampling": field_of("boolean", "it may ask the agent's model, at the agent's cost"),
        "protocol": field_of(
            "string", "auto, or legacy for a server whose tools ask their user in the older way", enum=["auto", "legacy"]
        ),
        "auth": {
            "description": "oauth, or a mapping with what is known for it",
            "anyOf": [field_of("string", enum=["oauth"]), _OAUTH],
        },
    },
)
_SERVERS = map_of("Tool servers (MCP) by name.", _SERVER)
_SERVER_FILE = field_of("string", "the config file of another MCP client, from this file's folder")
_PROVIDER = mapping_of(
    "How to reach a provider.",
    {
        "model": field_of("string"),
        "api_key": field_of("string", "better from the environment: ${OPENAI_API_KEY}"),
        "base_url": field_of("string"),
        "headers": field_of("object"),
        "settings": field_of("object", "sent with every request: temperature, max_tokens, …"),
        "tool_mode": field_of("string", "openai, local", enum=["auto", "native", "constrained", "text"]),
        "plan_first": field_of("boolean", "openai, local: a model that is held to a schema plans before its first call (true)"),
        "prompt_cache": field_of("string", "anthropic: how long a prompt is kept in its cache (5m)", enum=["5m", "1h", "off"]),
        "takes": {**TEXTS, "description": "openai: media types that the model accepts, such as image/; []: only text"},
        "threads": field_of("integer", "local: how many to compute with"),
        "context": field_of("integer", "local: the longest prompt, in tokens"),
    },
)
_ONE_MODEL = [
    field_of("string", "provider/model, local, or local/FILE.gguf"),
    {**_PROVIDER, "description": "a model with a key or an address of its own", "required": ["model"]},
]
_MODEL = {
    "description": "provider/model, local, or local/FILE.gguf; in a list, the next is asked when one fails. "
    "A list inside the list holds equals, over which the calls are spread",
    "anyOf": [*_ONE_MODEL, field_of("array", items={"anyOf": [*_ONE_MODEL, field_of("array", items={"anyOf": _ONE_MODEL})]})],
}
_STOPS = mapping_of(
    "Limits; whatever is hit, the work so far is kept.",
    {
        "max_steps": field_of(["integer", "null"], "model calls in a turn (10)"),
        "cost": field_of(["string", "number", "null"], "US dollars, such as $0.50"),
        "deadline": field_of([*TIME, "null"], "working time, such as 5m"),
        "no_repeats": field_of(["integer", "null"], "the same call at most so often (2)"),
        "per_tool": field_of(["integer", "null"], "each tool at most so often"),
    },
)
_KEPT = {
    "description": "how long ended runs are kept: a time such as 90d, forever (default), or times by how they ended",
    "anyOf": [
        field_of("string"),
        field_of("number"),
        mapping_of("`runs` for all that are not named.", {name: field_of(TIME) for name in ("runs", *STATUSES)}),
    ],
}
_AGENT = mapping_of(
    "An agent.",
    {
        "model": _MODEL,
        "instructions": field_of("string", "how to go about it"),
        "tools": {**TEXTS, "description": "module:function, FILE.py, calculator, database:FILE-OR-URL, search, senses"},
        "mcp_servers": {
            "description": "servers of its own, by name; or a list of names of those below, if not all of them",
            "anyOf": [{"type": "array", "items": {"type": "string"}}, _SERVERS, _SERVER_FILE],
        },
        "stops": _STOPS,
        "limits": LIMITS,
        "settings": field_of("object", "sent with every request: temperature, max_tokens, …"),
        "approve": {**TEXTS, "description": "tools that a person is asked about first"},
        "approval": mapping_of(
            "how these questions are asked",
            {
                "by": field_of("string", "other: not the user who started the run", enum=["other"]),
                "expires": field_of(["string", "number"], "after which the question is answered by itself, such as 1h"),
                "then": field_of("string", "the answer then (refuse)", enum=["refuse", "approve"]),
            },
        ),
        "guardrails": GUARDRAILS,
        "flow": FLOW,
        "privacy": PRIVACY,
        "fallback": FALLBACK,
        "cache": CACHE,
        "equals": field_of("array", "lists of tools that do the same; the one that did best in past runs is used", items=TEXTS),
        "policies": {**TEXTS, "description": "policies of your own, as module:name, outermost first"},
        "memory": field_of(
            "string",
            "what is remembered: by rules (what the user states), by the model (which writes it down), nothing (by tools)",
            enum=["rules", "model", "nothing"],
        ),
        "lessons": field_of(
            "string",
            "what is learned from failures: suggest (a person approves), apply (if a trial shows that it helps), off",
            enum=["off", "suggest", "apply"],
        ),
        "compact": field_of("integer", "tokens; a conversation that is longer is summed up"),
        "todo": field_of("boolean", "the model keeps a list of things to do, which people see"),
        "results": RESULTS,
        "tool_search": TOOL_SEARCH,
        "project": field_of(["boolean", "string"], "a folder whose AGENTS.md and skills the agent is told of; true: this one"),
        "approvers_see": field_of(
            "string",
            "what people see who answer its questions for other users: nothing, the call, also this turn or the run (call)",
            enum=["nothing", "call", "turn", "run"],
        ),
        "team": {**TEXTS, "description": "other agents of this file, to hand the conversation or a part of the work to"},
        "background": field_of("boolean", "the team can also work in the background (false)"),
        "keep": _KEPT,
    },
)
_LEVEL = field_of("string", "debug, info, warning, error", enum=["debug", "info", "warning", "error"])
_CONTENT = field_of("boolean", "also what was said, and what tools got and gave (false)")
_TRACE = mapping_of(
    "Where it is told what runs do.",
    {
        "console": {
            "description": "on standard error; a level, or a mapping",
            "anyOf": [_LEVEL, mapping_of("", {"level": _LEVEL, "content": _CONTENT})],
        },
        "file": {
            "description": "JSON, a line each; a path from this file's folder, or a mapping",
            "anyOf": [
                field_of("string"),
                mapping_of(
                    "",
                    {
                        "path": field_of("string"),
                        "level": _LEVEL,
                        "content": _CONTENT,
                        "max_bytes": field_of("integer", "after which another file is begun (10000000)"),
                        "keep": field_of("integer", "how many old ones stay (5)"),
                    },
                    required=["path"],
                ),
            ],
        },
        "otel": {
            "description": "OpenTelemetry (OTLP over HTTP); an address such as http://localhost:4318, or a mapping",
            "anyOf": [
                field_of("string"),
                mapping_of(
                    "",
                    {
                        "endpoint": field_of("string"),
                        "content": _CONTENT,
                        "headers": field_of("object", "HTTP headers", additionalProperties={"type": "string"}),
                        "service": field_of("string", "the name it is known by (kaname)"),
                    },
                ),
            ],
        },
    },
)
_SERVE = mapping_of(
    "For `kaname serve`; the command line goes over it.",
    {
        "host": field_of("string", "the address to listen on (127.0.0.1)"),
        "port": field_of("integer", "(8000)"),
        "workers": field_of("integer", "processes (1)"),
        "users": field_of("string", "the file with who may use it, from this file's folder"),
        "hosts": {**TEXTS, "description": "names under which it is reached"},
        "origins": {**TEXTS, "description": "pages that may use it, as https://example.org"},
        "proxies": {**TEXTS, "description": "addresses or networks of proxies whose X-Forwarded-For is believed"},
        "session": field_of(TIME, "how long a sign-in to the page lasts, such as 8h (12h)"),
        "oidc": {
            **mapping_of(
                "Sign-in through an OpenID provider; needs the extra `oidc`.",
                {
                    "issuer": field_of("string", "the address of the provider, https"),
                    "client_id": field_of("string", "the id of this server at the provider"),
                    "client_secret_env": field_of("string", "the environment variable with the client secret"),
                    "groups": field_of("object", "roles by group", additionalProperties={"anyOf": [{"type": "string"}, TEXTS]}),
                    "user": field_of("string", "the claim with the name of the user (sub)"),
                    "groups_claim": field_of("string", "the claim with the groups (groups)"),
                    "scopes": {**TEXTS, "description": "what is asked for (openid, email, profile)"},
                    "redirect_uri": field_of("string", "where the provider sends the browser back: https://…/signin/callback"),
                    "name": field_of("string", "the name on the page (the host of the provider)"),
                },
            ),
            "required": ["issuer", "client_id", "groups"],
        },
        "on_disconnect": field_of(
            "string",
            "what becomes of a run if a client of another protocol closes its stream (stop)",
            enum=["stop", "continue"],
        ),
    },
)
_AUDIT = {
    "description": "The audit log of `kaname serve`: true (default), false, or a mapping.",
    "anyOf": [
        field_of("boolean"),
        mapping_of(
            "",
            {
                "path": field_of("string", "the file, from this file's folder (audit.log next to the journal)"),
                "head": field_of("string", "the file for the number of entries and the last hash (the path with .head)"),
            },
        ),
    ],
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "kaname.yaml",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "agents": map_of("Agents by name; the first is the one that is meant where none is named.", _AGENT),
        "models": map_of("Keys and addresses by provider.", _PROVIDER),
        "llm": {
            "type": "object",
            "description": "The short form, for one agent: a provider, and a block with its name.",
            "required": ["provider"],
            "properties": {
                "provider": {"type": "string"},
                "temperature": field_of(["number", "null"], "0.7 unless it is said; null: the provider's own", minimum=0),
                "max_tokens": field_of(
                    ["integer", "null"], "of a reply; 1000 unless it is said; null: the provider's own", minimum=1
                ),
            },
            "additionalProperties": _PROVIDER,
        },
        "search": mapping_of("The tool `search`.", {"top_k": field_of("integer", "passages that it returns; 5", minimum=1)}),
        "database": mapping_of(
            "The tool `database`.", {"max_rows": field_of("integer", "rows that it returns; 100", minimum=1)}
        ),
        "senses": mapping_of(
            "The tools `senses`, for pictures, sound and video.",
            {
                "model": field_of("string", "a model that sees: it describes pictures and summarizes videos"),
                **{
                    task: {**TEXTS, "type": ["string", "array"], "description": f"who does it: openai/MODEL{here}, in order"}
                    for task, here in {"generate": "", "edit": "", "transcribe": " or local", "speak": " or local"}.items()
                },
                "prices": map_of(
                    "Prices by provider, in US dollars.",
                    mapping_of(
                        "",
                        {
                            "picture": field_of("number", "of a picture"),
                            "minute": field_of("number", "of a minute of sound that is transcribed"),
                            "characters": field_of("number", "of a thousand characters that are spoken"),
                        },
                    ),
                ),
                "longest": field_of(TIME, "the longest sound or video (1h)"),
                "most_bytes": field_of("integer", "the largest file (50000000)", minimum=1),
                "folder": field_of("string", "a folder whose files the tools can open, too"),
                "urls": field_of("boolean", "the tools can fetch public web addresses (false)"),
            },
        ),
        "mcp_servers": {"description": _SERVERS["description"], "anyOf": [_SERVERS, _SERVER_FILE]},
        "workflows": {**TEXTS, "description": "workflow files that `kaname serve` serves, from this file's folder"},
        "limits": {**LIMITS, "description": "Limits of all agents that have no `limits` of their own."},
        "permissions": PERMISSIONS,
        "journal": field_of(
            "string", "where runs are recorded: a file, from this file's folder, or a database (postgresql://…)"
        ),
        "encryption": mapping_of(
            "Encrypt the journal, memories, index and cache with a key: name one of these.",
            {
                "key_file": field_of("string", "a file with the key, from this file's folder; only its owner can read it"),
                "keyring": field_of("string", "the name of the key in the keyring of the system"),
            },
        ),
        "keep": _KEPT,
        "schedules": map_of("Runs at certain times, by name.", SCHEDULE),
        "triggers": map_of("Webhooks by name.", TRIGGER),
        "notify": map_of("Notifications of waiting questions, by name.", NOTIFY),
        "serve": _SERVE,
        "audit": _AUDIT,
        "trace": _TRACE,
    },
}


@cache
def plain_values() -> frozenset[str]:
    """The keys that hold a number or a truth value: `${NAME}` in quotes is one there, and no text."""
    found: set[str] = set()

    def look(schema: Any) -> None:
        if isinstance(schema, dict):
            for name, inner in (schema.get("properties") or {}).items():
                kinds = inner.get("type", ()) if isinstance(inner, dict) else ()
                if {kinds} & _PLAIN if isinstance(kinds, str) else set(kinds) & _PLAIN:
                    found.add(name)
            for inner in schema.values():
                look(inner)
        elif isinstance(schema, list):
            for inner in schema:
                look(inner)

    look(SCHEMA)
    return frozenset(found)
