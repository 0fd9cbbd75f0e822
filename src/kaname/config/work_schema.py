"""JSON Schema of schedules, webhooks and notifications in `kaname.yaml`."""

from __future__ import annotations

from ..agent.work.schedule import MISSED
from .policy_schema import TEXTS, TIME, field_of, mapping_of

_QUEUED = {
    "agent": field_of("string", "the agent or workflow (the first agent)"),
    "session_id": field_of("string", "the conversation"),
    "user_id": field_of("string", "the user"),
    "priority": field_of("integer", "runs with a higher priority are started first (0)"),
    "key": field_of("string", "what a limit per key counts"),
    "queue": field_of("string", "the queue (default)"),
}
SCHEDULE = mapping_of(
    "A run at certain times: set cron, every or at.",
    {
        "input": field_of(["string", "object"], "the input of the run; for a workflow, its parameters"),
        "cron": field_of("string", "minute hour day month weekday, such as 0 9 * * 1-5"),
        "tz": field_of("string", "the time zone of cron and at, such as Asia/Tokyo (UTC)"),
        "every": field_of(TIME, "an interval such as 15m"),
        "at": field_of("string", "one time, in quotes: 2026-12-01T09:00"),
        "missed": field_of("string", "times without a worker: skip, one run for all, or all (one)", enum=[*MISSED]),
        **_QUEUED,
    },
    required=["input"],
)
TRIGGER = mapping_of(
    "A webhook, POST /hooks/NAME of `kaname serve`, signed as Standard Webhooks says.",
    {
        "secret_env": field_of("string", "the environment variable with the secret"),
        "input": field_of("string", "the input; {body} or {body.issue.title} is replaced by what the sender wrote"),
        **_QUEUED,
    },
    required=["secret_env"],
)
NOTIFY = mapping_of(
    "Tell people that a question waits: by one of url, command and mail.",
    {
        "url": field_of("string", "a webhook of yours, signed as Standard Webhooks says"),
        "secret_env": field_of("string", "the environment variable with the secret of the webhook"),
        "command": {**TEXTS, "description": "a program and its arguments; it gets JSON on its standard input"},
        "mail": {**TEXTS, "description": "addresses"},
        "from": field_of("string", "the sender of mails"),
        "smtp": field_of("string", "the mail server, with its port (localhost:25)"),
        "user_env": field_of("string", "the environment variable with the name at the mail server; it must offer STARTTLS"),
        "password_env": field_of("string", "the environment variable with the password"),
        "agents": {**TEXTS, "description": "the agents whose questions count (all)"},
        "role": field_of("string", "the role of the people who are told: only questions that it can answer (approve:all)"),
        "user": field_of("string", "the user who is told; with the role approve, of questions of their own runs"),
        "every": field_of(TIME, "how often they are told again until it is answered (1h)"),
        "link": field_of("string", "the address of this server, such as https://kaname.example.com"),
    },
    required=["link"],
)
