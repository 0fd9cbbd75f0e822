"""JSON Schema of `kaname.yaml`: for the check, and for editors (`kaname config schema`)."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..memory.retention import STATUSES

_PLAIN = {"integer", "number", "boolean"}


def _a(kind: str | list[str], told: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, **({"description": told} if told else {}), **more}


def _mapping(told: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return _a("object", told, properties=properties, additionalProperties=False, **more)


def _map_of(told: str, each: dict[str, Any]) -> dict[str, Any]:
    return _a("object", told, additionalProperties=each)


_TEXTS = _a("array", items={"type": "string"})
_TIME = ["string", "number"]
_OAUTH = _mapping(
    "How to sign in.",
    {
        "scopes": _a(["string", "array"], "what to ask for"),
        "client_id": _a("string", "of a client that was registered before"),
        "client_secret": _a("string", "better from the environment"),
        "client_metadata_url": _a("string"),
        "issuer": _a("string", "with client_credentials: the only server that the secret is sent to"),
        "callback_port": _a("integer", "where the browser comes back to, on this machine"),
        "grant": _a(
            "string", "browser, or client_credentials for a program without a person", enum=["browser", "client_credentials"]
        ),
    },
)
_SERVER = _mapping(
    "A tool server (MCP): a command to start, or an address.",
    {
        "command": _a("string", "the program to start"),
        "args": _a("array", "its arguments", items={"type": ["string", "number"]}),
        "env": _a("object", "variables beside the usual ones", additionalProperties={"type": ["string", "number", "boolean"]}),
        "cwd": _a("string", "the folder to start it in"),
        "url": _a("string", "the address of a running server: http:// or https://"),
        "headers": _a("object", "HTTP headers", additionalProperties={"type": "string"}),
        "type": _a("string", enum=["stdio", "http", "streamable-http", "streamable_http", "sse"]),
        "transport": _a("string", enum=["stdio", "http", "streamable-http", "streamable_http", "sse"]),
        "timeout": _a([*_TIME, "null"], "of a call: seconds, or a text such as 30s; null: none"),
        "start_timeout": _a(_TIME, "until it is ready"),
        "required": _a("boolean", "nothing runs without it"),
        "disabled": _a("boolean"),
        "library": _a("boolean", "its resources and prompts as tools for the model"),
        "tools": {**_TEXTS, "description": "those that are wanted, if not all"},
        "exclude_tools": {**_TEXTS, "description": "those that are not wanted"},
        "roots": {**_TEXTS, "description": "folders that the server is told of"},
        "sampling": _a("boolean", "it may ask the agent's model, at the agent's cost"),
        "protocol": _a(
            "string", "auto, or legacy for a server whose tools ask their user in the older way", enum=["auto", "legacy"]
        ),
        "auth": {
            "description": "oauth, or a mapping with what is known for it",
            "anyOf": [_a("string", enum=["oauth"]), _OAUTH],
        },
    },
)
_SERVERS = _map_of("Tool servers (MCP) by name.", _SERVER)
_SERVER_FILE = _a("string", "the config file of another MCP client, from this file's folder")
_PROVIDER = _mapping(
    "How to reach a provider.",
    {
        "model": _a("string"),
        "api_key": _a("string", "better from the environment: ${OPENAI_API_KEY}"),
        "base_url": _a("string"),
        "headers": _a("object"),
        "settings": _a("object", "sent with every request: temperature, max_tokens, …"),
        "tool_mode": _a("string", "openai, local", enum=["auto", "native", "constrained", "text"]),
        "plan_first": _a("boolean", "openai, local: a model that is held to a schema plans before its first call (true)"),
        "prompt_cache": _a("string", "anthropic: how long a prompt is kept in its cache (5m)", enum=["5m", "1h", "off"]),
        "threads": _a("integer", "local: how many to compute with"),
        "context": _a("integer", "local: the longest prompt, in tokens"),
    },
)
_ONE_MODEL = [
    _a("string", "provider/model, local, or local/FILE.gguf"),
    {**_PROVIDER, "description": "a model with a key or an address of its own", "required": ["model"]},
]
_MODEL = {
    "description": "provider/model, local, or local/FILE.gguf; in a list, the next is asked when one fails. "
    "A list inside the list holds equals, over which the calls are spread",
    "anyOf": [*_ONE_MODEL, _a("array", items={"anyOf": [*_ONE_MODEL, _a("array", items={"anyOf": _ONE_MODEL})]})],
}
_STOPS = _mapping(
    "Limits; whatever is hit, the work so far is kept.",
    {
        "max_steps": _a(["integer", "null"], "model calls in a turn (10)"),
        "cost": _a(["string", "number", "null"], "US dollars, such as $0.50"),
        "deadline": _a([*_TIME, "null"], "working time, such as 5m"),
        "no_repeats": _a(["integer", "null"], "the same call at most so often (2)"),
        "per_tool": _a(["integer", "null"], "each tool at most so often"),
    },
)
_GUARDRAILS = _mapping(
    "What may go in and come out, and which tools may be used how.",
    {
        "max_input_tokens": _a(["integer", "null"], "(4096)"),
        "max_output_tokens": _a(["integer", "null"], "(4096)"),
        "blocked_patterns": {**_TEXTS, "description": "regular expressions that end a run"},
        "warn_patterns": {**_TEXTS, "description": "regular expressions that are reported"},
        "input_checks": {**_TEXTS, "description": "functions, as module:name"},
        "output_checks": {**_TEXTS, "description": "functions, as module:name"},
        "result_checks": {**_TEXTS, "description": "functions, as module:name"},
        "window": _a("integer", "characters that a check is sure to see as a whole (500)"),
        "longest_match": _a("integer", "characters held back at most while a pattern may match (4000)"),
        "check_seconds": _a("number", "how long a check may take (60)"),
        "tools": _map_of(
            "Rules by tool; * for all others.",
            _mapping(
                "",
                {
                    "allowed": _a("boolean"),
                    "max_calls": _a("integer", "in a turn"),
                    "arguments": _a(
                        "object", "a pattern that the whole value has to fit", additionalProperties={"type": "string"}
                    ),
                },
            ),
        ),
    },
)
_TREATMENT = _a("string", enum=["mask", "pseudonymise", "remove", "block", "warn", "allow"])
_PRIVACY = {
    "description": "true to hide personal data from the model, or a mapping (off unless it is set)",
    "anyOf": [
        _a("boolean"),
        _mapping(
            "",
            {
                "kinds": _map_of(
                    "What is done with each kind of data; * for all others.",
                    {
                        "anyOf": [
                            _TREATMENT,
                            _mapping("", dict.fromkeys(("input", "results", "output", "arguments"), _TREATMENT)),
                        ]
                    },
                ),
                "patterns": _a("object", "regular expressions by the name of a kind", additionalProperties={"type": "string"}),
                "detectors": {**_TEXTS, "description": "functions that find data in a text, as module:name"},
            },
        ),
    ],
}
_FALLBACK = _mapping(
    "What to do when a tool fails.",
    {
        "max_retries": _a("integer", "(2)"),
        "backoff": _a("number", "seconds before the first retry (0.5); doubled each time"),
        "longest_wait": _a("number"),
        "degrade": _a("boolean", "answer without the tool in the end (true)"),
        "tools": _a("object", "which tool to try in the place of which", additionalProperties={"type": "string"}),
    },
)
_CACHE = {
    "description": "true to cache replies of models and results of pure tools, or a mapping (off unless it is set)",
    "anyOf": [
        _a("boolean"),
        _mapping(
            "",
            {
                "models": _a("boolean", "replies of models (true)"),
                "tools": _a("boolean", "results of tools that are declared pure (true)"),
                "ttl": _a([*_TIME, "null"], "how long an entry is used (1d); null: no end"),
                "size": _a(["string", "integer"], "of the file's content, such as 200MB (default)"),
                "path": _a("string", "the file, from this file's folder (.kaname/cache.db)"),
                "any_temperature": _a("boolean", "also replies at a temperature above 0 (false)"),
            },
        ),
    ],
}
_AMOUNT = {"type": ["string", "number", "array"], "items": {"type": ["string", "number"]}}
_BUDGET = _mapping(
    "Limits on money, tokens and calls, such as $5/day, 200k tokens/hour or [$50/month, 100 calls/day].",
    {
        "run": {**_AMOUNT, "description": "of each run, with its children"},
        "session": {**_AMOUNT, "description": "of each session"},
        "user": {**_AMOUNT, "description": "of each user, over all agents"},
        "agent": {**_AMOUNT, "description": "of the agent, over all users"},
        "total": {**_AMOUNT, "description": "of everything that the journal records"},
        "tools": _a("object", "calls of single tools, by their names", additionalProperties=_AMOUNT),
        "unpriced": {"enum": ["refuse", "allow"], "description": "models whose price is unknown (refuse)"},
        "longest_reply": _a("integer", "tokens of a reply, if max_tokens is not set (16384)", minimum=1),
        "zone": _a("string", "the time zone in which days begin, such as Asia/Tokyo (UTC)"),
    },
)
_LIMITS = _mapping(
    "Limits on what runs spend, and on how fast; runs that reach a rate wait.",
    {
        "budget": _BUDGET,
        "requests": _a("string", "requests to each provider and key, such as 60/min"),
        "tokens": _a("string", "tokens of each provider and key, such as 100k/min"),
        "at_once": _a("integer", "model calls at the same time, for each provider and key", minimum=1),
        "machine": _mapping(
            "Per cent above which new work waits.",
            {
                "cpu": _a("number"),
                "memory": _a("number"),
                "gpu": _a("number"),
                "priority": _a("integer", "higher goes first (0)"),
            },
        ),
    },
)
_PATTERNS = {"type": ["string", "array"], "items": {"type": "string"}}
_PERMISSION = _mapping(
    "A rule: who is allowed what. Patterns with *, or lists of them.",
    {
        "name": _a("string", "for refusals"),
        "effect": _a("string", "deny wins over allow (allow)", enum=["allow", "deny"]),
        "user": {**_PATTERNS, "description": "users"},
        "role": {**_PATTERNS, "description": "roles of the user"},
        "agent": {**_PATTERNS, "description": "agents that make the call"},
        "path": {**_PATTERNS, "description": "agents that had the work one after the other, such as desk/billing"},
        "tool": {**_PATTERNS, "description": "tools that can be used"},
        "handoff": {**_PATTERNS, "description": "agents to which work can be transferred or delegated"},
        "data": {**_PATTERNS, "description": "ids of data"},
        "action": {**_PATTERNS, "description": "actions on the data (read)"},
        "where": _a(
            "object",
            "conditions on arguments: a pattern, a list of values, or a mapping with equals, one_of, starts_with, less_than, "
            "at_most, greater_than, at_least",
        ),
    },
)
_PERMISSIONS = {
    "description": "What users and agents are allowed to do; everything else is refused. A mapping, or a file with one.",
    "anyOf": [
        _a("string", "a file, from this file's folder"),
        _mapping(
            "",
            {
                "rules": _a("array", "what is allowed and denied", items=_PERMISSION),
                "roles": _map_of("Roles by user.", _PATTERNS),
                "resources": _map_of("The data that calls read, by tool, such as order:{order_id}.", _a("string")),
                "cedar": _a("string", "a file with Cedar policies instead of rules, from this file's folder"),
                "entities": _a("string", "a JSON file with entities for Cedar, from this file's folder"),
            },
        ),
    ],
}
_KEPT = {
    "description": "how long ended runs are kept: a time such as 90d, forever (default), or times by how they ended",
    "anyOf": [
        _a("string"),
        _a("number"),
        _mapping("`runs` for all that are not named.", {name: _a(_TIME) for name in ("runs", *STATUSES)}),
    ],
}
_AGENT = _mapping(
    "An agent.",
    {
        "model": _MODEL,
        "instructions": _a("string", "how to go about it"),
        "tools": {**_TEXTS, "description": "module:function, FILE.py, calculator, database:FILE-OR-URL, search"},
        "mcp_servers": {
            "description": "servers of its own, by name; or a list of names of those below, if not all of them",
            "anyOf": [{"type": "array", "items": {"type": "string"}}, _SERVERS, _SERVER_FILE],
        },
        "stops": _STOPS,
        "limits": _LIMITS,
        "settings": _a("object", "sent with every request: temperature, max_tokens, …"),
        "approve": {**_TEXTS, "description": "tools that a person is asked about first"},
        "guardrails": _GUARDRAILS,
        "privacy": _PRIVACY,
        "fallback": _FALLBACK,
        "cache": _CACHE,
        "equals": _a("array", "lists of tools that do the same; the one that did best in past runs is used", items=_TEXTS),
        "policies": {**_TEXTS, "description": "policies of your own, as module:name, outermost first"},
        "memory": _a(
            "string",
            "what is remembered: by rules (what the user states), by the model (which writes it down), nothing (by tools)",
            enum=["rules", "model", "nothing"],
        ),
        "compact": _a("integer", "tokens; a conversation that is longer is summed up"),
        "project": _a(["boolean", "string"], "a folder whose AGENTS.md and skills the agent is told of; true: this one"),
        "team": {**_TEXTS, "description": "other agents of this file, to hand the conversation or a part of the work to"},
        "keep": _KEPT,
    },
)
_LEVEL = _a("string", "debug, info, warning, error", enum=["debug", "info", "warning", "error"])
_CONTENT = _a("boolean", "also what was said, and what tools got and gave (false)")
_TRACE = _mapping(
    "Where it is told what runs do.",
    {
        "console": {
            "description": "on standard error; a level, or a mapping",
            "anyOf": [_LEVEL, _mapping("", {"level": _LEVEL, "content": _CONTENT})],
        },
        "file": {
            "description": "JSON, a line each; a path from this file's folder, or a mapping",
            "anyOf": [
                _a("string"),
                _mapping(
                    "",
                    {
                        "path": _a("string"),
                        "level": _LEVEL,
                        "content": _CONTENT,
                        "max_bytes": _a("integer", "after which another file is begun (10000000)"),
                        "keep": _a("integer", "how many old ones stay (5)"),
                    },
                    required=["path"],
                ),
            ],
        },
        "otel": {
            "description": "OpenTelemetry (OTLP over HTTP); an address such as http://localhost:4318, or a mapping",
            "anyOf": [
                _a("string"),
                _mapping(
                    "",
                    {
                        "endpoint": _a("string"),
                        "content": _CONTENT,
                        "headers": _a("object", "HTTP headers", additionalProperties={"type": "string"}),
                        "service": _a("string", "the name it is known by (kaname)"),
                    },
                ),
            ],
        },
    },
)
_SERVE = _mapping(
    "For `kaname serve`; the command line goes over it.",
    {
        "host": _a("string", "the address to listen on (127.0.0.1)"),
        "port": _a("integer", "(8000)"),
        "workers": _a("integer", "processes (1)"),
        "users": _a("string", "the file with who may use it, from this file's folder"),
        "hosts": {**_TEXTS, "description": "names under which it is reached"},
        "origins": {**_TEXTS, "description": "pages that may use it, as https://example.org"},
        "on_disconnect": _a(
            "string",
            "what becomes of a run if a client of another protocol closes its stream (stop)",
            enum=["stop", "continue"],
        ),
    },
)
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "kaname.yaml",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "agents": _map_of("Agents by name; the first is the one that is meant where none is named.", _AGENT),
        "models": _map_of("Keys and addresses by provider.", _PROVIDER),
        "llm": {
            "type": "object",
            "description": "The short form, for one agent: a provider, and a block with its name.",
            "required": ["provider"],
            "properties": {
                "provider": {"type": "string"},
                "temperature": _a(["number", "null"], "0.7 unless it is said; null: the provider's own", minimum=0),
                "max_tokens": _a(
                    ["integer", "null"], "of a reply; 1000 unless it is said; null: the provider's own", minimum=1
                ),
            },
            "additionalProperties": _PROVIDER,
        },
        "search": _mapping("The tool `search`.", {"top_k": _a("integer", "passages that it returns; 5", minimum=1)}),
        "database": _mapping("The tool `database`.", {"max_rows": _a("integer", "rows that it returns; 100", minimum=1)}),
        "mcp_servers": {"description": _SERVERS["description"], "anyOf": [_SERVERS, _SERVER_FILE]},
        "workflows": {**_TEXTS, "description": "workflow files that `kaname serve` serves, from this file's folder"},
        "limits": {**_LIMITS, "description": "Limits of all agents that have no `limits` of their own."},
        "permissions": _PERMISSIONS,
        "journal": _a("string", "where runs are recorded: a file, from this file's folder"),
        "keep": _KEPT,
        "serve": _SERVE,
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
