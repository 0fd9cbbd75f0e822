"""Schema of the policies of an agent: guardrails, flow, privacy, fallback, cache, limits, permissions."""

from __future__ import annotations

from typing import Any

from ..core.people.labels import PARAMETER_ROLES, ROLES


def field_of(kind: str | list[str], told: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, **({"description": told} if told else {}), **more}


def mapping_of(told: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return field_of("object", told, properties=properties, additionalProperties=False, **more)


def map_of(told: str, each: dict[str, Any]) -> dict[str, Any]:
    return field_of("object", told, additionalProperties=each)


TEXTS = field_of("array", items={"type": "string"})
TIME = ["string", "number"]
GUARDRAILS = mapping_of(
    "What may go in and come out, and which tools may be used how.",
    {
        "max_input_tokens": field_of(["integer", "null"], "(4096)"),
        "max_output_tokens": field_of(["integer", "null"], "(4096)"),
        "blocked_patterns": {**TEXTS, "description": "regular expressions that end a run"},
        "warn_patterns": {**TEXTS, "description": "regular expressions that are reported"},
        "input_checks": {**TEXTS, "description": "functions, as module:name"},
        "output_checks": {**TEXTS, "description": "functions, as module:name"},
        "result_checks": {**TEXTS, "description": "functions, as module:name"},
        "window": field_of("integer", "characters that a check is sure to see as a whole (500)"),
        "longest_match": field_of("integer", "characters held back at most while a pattern may match (4000)"),
        "check_seconds": field_of("number", "how long a check may take (60)"),
        "tools": map_of(
            "Rules by tool; * for all others.",
            mapping_of(
                "",
                {
                    "allowed": field_of("boolean"),
                    "max_calls": field_of("integer", "in a turn"),
                    "arguments": field_of(
                        "object", "a pattern that the whole value has to fit", additionalProperties={"type": "string"}
                    ),
                },
            ),
        ),
    },
)
TREATMENT = field_of("string", enum=["mask", "pseudonymise", "remove", "block", "warn", "allow"])
PRIVACY = {
    "description": "true to hide personal data from the model, or a mapping (off unless it is set)",
    "anyOf": [
        field_of("boolean"),
        mapping_of(
            "",
            {
                "kinds": map_of(
                    "What is done with each kind of data; * for all others.",
                    {
                        "anyOf": [
                            TREATMENT,
                            mapping_of("", dict.fromkeys(("input", "results", "output", "arguments"), TREATMENT)),
                        ]
                    },
                ),
                "patterns": field_of(
                    "object", "regular expressions by the name of a kind", additionalProperties={"type": "string"}
                ),
                "detectors": {**TEXTS, "description": "functions that find data in a text, as module:name"},
            },
        ),
    ],
}
LABELS = mapping_of(
    "",
    {
        "role": field_of("string", "whether the tool reads, acts, or changes only what is the user's own", enum=[*ROLES]),
        "parameters": map_of("what each parameter is; target unless it is said", field_of("string", enum=[*PARAMETER_ROLES])),
        "result": {
            "description": "trusted, untrusted (unless it is said), or the names of trusted fields",
            "anyOf": [field_of("string"), TEXTS],
        },
        "private": field_of("boolean", "whether the results are private"),
        "verbs": {**TEXTS, "description": "the words with which a user asks for the tool"},
        "prose": field_of("string", "whether content may come from elsewhere", enum=["strict", "lenient"]),
    },
)
MODE = field_of("string", enum=["off", "everything", "strict"])
FLOW = {
    "description": "what text from outside may cause: off, everything (all acting calls wait for the user), or strict",
    "anyOf": [
        MODE,
        mapping_of(
            "",
            {
                "mode": MODE,
                "labels": map_of("Labels by tool.", LABELS),
                "words": field_of("string", "a text that counts as the user's words"),
            },
        ),
    ],
}
FALLBACK = mapping_of(
    "What to do when a tool fails.",
    {
        "max_retries": field_of("integer", "(2)"),
        "backoff": field_of("number", "seconds before the first retry (0.5); doubled each time"),
        "longest_wait": field_of("number"),
        "degrade": field_of("boolean", "answer without the tool in the end (true)"),
        "tools": field_of("object", "which tool to try in the place of which", additionalProperties={"type": "string"}),
    },
)
CACHE = {
    "description": "true to cache replies of models and results of pure tools, or a mapping (off unless it is set)",
    "anyOf": [
        field_of("boolean"),
        mapping_of(
            "",
            {
                "models": field_of("boolean", "replies of models (true)"),
                "tools": field_of("boolean", "results of tools that are declared pure (true)"),
                "ttl": field_of([*TIME, "null"], "how long an entry is used (1d); null: no end"),
                "size": field_of(["string", "integer"], "of the file's content, such as 200MB (default)"),
                "path": field_of("string", "the file, from this file's folder (.kaname/cache.db)"),
                "any_temperature": field_of("boolean", "also replies at a temperature above 0 (false)"),
            },
        ),
    ],
}
RESULTS = {
    "description": "true to let the model read on in long results of tools, or a mapping (off unless it is set)",
    "anyOf": [
        field_of("boolean"),
        mapping_of(
            "",
            {
                "shown": field_of("integer", "characters of a result that the model sees (40000)", minimum=500),
                "forget_after": field_of("integer", "tokens of results, after which the older ones are left out", minimum=1),
                "keep": field_of("integer", "the last results, which are never left out (3)", minimum=0),
            },
        ),
    ],
}
TOOL_SEARCH = mapping_of(
    "How the model looks up tools if there are many.",
    {
        "above": field_of(["integer", "null"], "from how many tools on (30); null: never", minimum=0),
        "always": {**TEXTS, "description": "tools that the model always sees"},
        "native": field_of("boolean", "by the provider's own tool search (where the model has one)"),
    },
)
AMOUNT = {"type": ["string", "number", "array"], "items": {"type": ["string", "number"]}}
BUDGET = mapping_of(
    "Limits on money, tokens and calls, such as $5/day, 200k tokens/hour or [$50/month, 100 calls/day].",
    {
        "run": {**AMOUNT, "description": "of each run, with its children"},
        "session": {**AMOUNT, "description": "of each session"},
        "user": {**AMOUNT, "description": "of each user, over all agents"},
        "agent": {**AMOUNT, "description": "of the agent, over all users"},
        "total": {**AMOUNT, "description": "of everything that the journal records"},
        "tools": field_of("object", "calls of single tools, by their names", additionalProperties=AMOUNT),
        "unpriced": {"enum": ["refuse", "allow"], "description": "models whose price is unknown (refuse)"},
        "longest_reply": field_of("integer", "tokens of a reply, if max_tokens is not set (16384)", minimum=1),
        "zone": field_of("string", "the time zone in which days begin, such as Asia/Tokyo (UTC)"),
    },
)
LIMITS = mapping_of(
    "Limits on what runs spend, and on how fast; runs that reach a rate wait.",
    {
        "budget": BUDGET,
        "requests": field_of("string", "requests to each provider and key, such as 60/min"),
        "tokens": field_of("string", "tokens of each provider and key, such as 100k/min"),
        "at_once": field_of("integer", "model calls at the same time, for each provider and key", minimum=1),
        "machine": mapping_of(
            "Per cent above which new work waits.",
            {
                "cpu": field_of("number"),
                "memory": field_of("number"),
                "gpu": field_of("number"),
                "priority": field_of("integer", "higher goes first (0)"),
            },
        ),
    },
)
PATTERNS = {"type": ["string", "array"], "items": {"type": "string"}}
PERMISSION = mapping_of(
    "A rule: who is allowed what. Patterns with *, or lists of them.",
    {
        "name": field_of("string", "for refusals"),
        "effect": field_of("string", "deny wins over allow (allow)", enum=["allow", "deny"]),
        "user": {**PATTERNS, "description": "users"},
        "role": {**PATTERNS, "description": "roles of the user"},
        "agent": {**PATTERNS, "description": "agents that make the call"},
        "path": {**PATTERNS, "description": "agents that had the work one after the other, such as desk/billing"},
        "tool": {**PATTERNS, "description": "tools that can be used"},
        "handoff": {**PATTERNS, "description": "agents to which work can be transferred or delegated"},
        "data": {**PATTERNS, "description": "ids of data"},
        "action": {**PATTERNS, "description": "actions on the data (read)"},
        "where": field_of(
            "object",
            "conditions on arguments: a pattern, a list of values, or a mapping with equals, one_of, starts_with, less_than, "
            "at_most, greater_than, at_least",
        ),
    },
)
PERMISSIONS = {
    "description": "What users and agents are allowed to do; everything else is refused. A mapping, or a file with one.",
    "anyOf": [
        field_of("string", "a file, from this file's folder"),
        mapping_of(
            "",
            {
                "rules": field_of("array", "what is allowed and denied", items=PERMISSION),
                "roles": map_of("Roles by user.", PATTERNS),
                "resources": map_of("The data that calls read, by tool, such as order:{order_id}.", field_of("string")),
                "cedar": field_of("string", "a file with Cedar policies instead of rules, from this file's folder"),
                "entities": field_of("string", "a JSON file with entities for Cedar, from this file's folder"),
            },
        ),
    ],
}
