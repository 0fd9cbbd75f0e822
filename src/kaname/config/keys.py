"""All keys of `kaname.yaml`, one row each: type, description in English and Japanese, default, check, and maker.

The JSON Schema for editors (`kaname config schema`), the check of files, the parts of agents and the list of keys in the docs
(`kaname config keys`) come from this table. To add a key, add a row; an agent's key that makes a part names a function of
`makers.py`. The makers run in the order of the rows: the first policy is the outermost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from ..agent.work.schedule import MISSED, make_schedule
from ..core.durations import seconds
from ..core.errors import AgentError, ConfigError, nearest
from ..core.notices import notice
from ..core.people.labels import PARAMETER_ROLES, ROLES
from ..core.record import record
from ..memory.retention import STATUSES, keep_seconds
from ..models.compatible import SERVERS
from ..models.registry import LITELLM, PROVIDERS, with_slash
from ..policies.pace.limits import read_at_once, read_rate
from . import makers

Row = dict[str, Any]
Wrong = Callable[[tuple[str, ...], str], None]
Check = Callable[[Any, Wrong], None]
MORE = "more"  # the key of a row's `More`
SYNONYMS = {"claude": "anthropic"}


@record
class More:
    """The columns of a row that JSON Schema does not have.

    `of`: the providers that take the key; all without it. `make`: which parameter of `Agent` the maker contributes to.
    """

    japanese: str = ""
    check: Check | None = None
    make: tuple[str, Callable[..., Any]] | None = None
    of: tuple[str, ...] = ()


def key(
    kind: str, english: str = "", japanese: str = "", default: Any = None, *,
    check: Check | None = None, make: Any = None, of: str = "", **more: Any,
) -> Row:  # fmt: skip
    """Return the row of a key. `kind`: its JSON types with `|` between them, or "strings" for a list of strings."""
    row: Row = {"type": kind.split("|") if "|" in kind else kind} if kind else {}
    if kind == "strings":
        row = {"type": "array", "items": {"type": "string"}}
    if default is not None:
        shown = default if isinstance(default, str) else json.dumps(default)
        english = f"{english.rstrip('.')} (default: {shown})."
        japanese = japanese and f"{japanese.rstrip('。')} (既定: {shown})。"
        more["default"] = default
    if english:
        row["description"] = english
    if japanese or check or make or of:
        row[MORE] = More(japanese, check, make, tuple(of.split()))
    return {**row, **more}


def block(english: str, japanese: str, properties: Mapping[str, Row], **more: Any) -> Row:
    """Return the row of a mapping with these keys."""
    return key("object", english, japanese, properties=properties, additionalProperties=False, **more)


def by_name(english: str, japanese: str, each: Row, **more: Any) -> Row:
    """Return the row of a mapping with names of the user's own."""
    return key("object", english, japanese, additionalProperties=each, **more)


def either(english: str, japanese: str, *rows: Row, **more: Any) -> Row:
    """Return the row of a value that has one of several forms."""
    return key("", english, japanese, anyOf=[*rows], **more)


def parsed_by(parse: Callable[[Any], Any]) -> Check:
    """Return a check that reports what a function says of a text or a number."""

    def look(value: Any, wrong: Wrong) -> None:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                parse(value)
            except (AgentError, ValueError, TypeError) as problem:
                wrong((), str(problem))

    return look


def is_place(model: str) -> bool:
    """Return True for `FILE.py:name`: a model, or the class of one, in a Python file."""
    return model.partition(":")[0].endswith(".py")


def check_model(model: Any, wrong: Wrong) -> None:
    """Report a model that is not written as provider/model, or whose provider is not known."""
    if model in ("", "local") or is_place(model):
        return
    provider, slash, rest = model.partition("/")
    known = {*PROVIDERS, *SERVERS, *LITELLM}
    if not slash or not rest or ":" in provider:
        message = notice("config.model_form", "write the model as provider/model, not {model!r}", model=model)
        wrong((), message + with_slash(model))
    elif provider not in known:
        message = notice("config.no_provider", "unknown provider {provider!r}", provider=provider)
        wrong((), message + nearest(provider, known))


def check_provider(name: str, wrong: Wrong) -> None:
    """Report a provider that is not known."""
    check_model(f"{SYNONYMS.get(name, name)}/x", wrong)


def check_block(provider: str, settings: Mapping[str, Any], wrong: Wrong) -> None:
    """Report keys that exist, but that this provider does not take."""
    name = SYNONYMS.get(provider, provider)
    kind = "openai" if name in SERVERS else name if name in ("openai", "anthropic", "local", "scripted", "replay") else "other"
    rows = {one: row.get(MORE, More()).of for one, row in PROVIDER["properties"].items()}
    taken = [one for one, of in rows.items() if not of or kind in of]
    for one in settings:
        if one in rows and one not in taken:
            listed = ", ".join(sorted(taken))
            message = notice(
                "config.provider_options",
                "{provider} does not support this key. Supported keys: {listed}",
                provider=provider,
                listed=listed,
            )
            wrong((one,), message)


def _check_own_model(value: Any, wrong: Wrong) -> None:
    check_block(str(value.get("model")).partition("/")[0], value, wrong)


def _check_providers(value: Any, wrong: Wrong) -> None:
    for name, settings in value.items():
        check_provider(name, lambda _, text, name=name: wrong((name,), text))  # type: ignore[misc]
        if isinstance(settings, dict):
            check_block(name, settings, lambda where, text, name=name: wrong((name, *where), text))  # type: ignore[misc]


def _check_models(value: Any, wrong: Wrong) -> None:
    if not value:
        wrong((), notice("model.empty_list", "a list of models must not be empty"))


def _check_server(value: Any, wrong: Wrong) -> None:
    if bool(value.get("command")) == bool(value.get("url")):
        wrong((), notice("config.command_or_url", "set exactly one of command and url"))
    url = value.get("url")
    if isinstance(url, str) and url and not url.startswith(("http://", "https://")):
        wrong(("url",), notice("config.url_scheme", "the URL must start with http:// or https://, not {url!r}", url=url))


def _check_encryption(value: Any, wrong: Wrong) -> None:
    if len(value) != 1:
        wrong((), notice("config.encryption", "name either key_file or keyring"))


def _check_work(value: Any, wrong: Wrong, hooks: bool = False) -> None:
    """Check the names and times of schedules, or the names of webhooks: ids of their runs begin with them."""
    for name, one in value.items():
        given = one if isinstance(one, dict) and not hooks else {"every": "1h"}
        try:
            make_schedule(
                "", name, "", given.get("cron", ""), given.get("tz", "UTC"), given.get("every"), given.get("at"), "one"
            )
        except ConfigError as problem:
            wrong((name,), str(problem))


# fmt: off
_TIME = "string|number"
_PLACES = "A list of functions, as module:name."
_DURATION = parsed_by(seconds)
_RULE = {name: parsed_by(rule) for name, rule in makers.RULES.items()}
_CHECKED_TIME = key(_TIME, check=parsed_by(keep_seconds))
_TREATMENT = key("string", enum=["mask", "pseudonymise", "remove", "block", "warn", "allow"])
_MODE = key("string", enum=["off", "everything", "strict"])
_AMOUNT: Row = {"type": ["string", "number", "array"], "items": {"type": ["string", "number"]}}
_PATTERNS: Row = {"type": ["string", "array"], "items": {"type": "string"}}
_TEXT_BY_NAME: Any = {"additionalProperties": {"type": "string"}}
_TRANSPORTS = ["stdio", "http", "streamable-http", "streamable_http", "sse"]


def _amount(english: str, japanese: str) -> Row:
    return {**_AMOUNT, **key("", english, japanese)}


def _patterns(english: str, japanese: str) -> Row:
    return {**_PATTERNS, **key("", english, japanese)}


GUARDRAILS = block("Checks of what goes in and out, and of the use of tools.", "入出力とツールの使い方の検査。", {
    "max_input_tokens": key("integer|null", "The longest input, in tokens.", "入力の最大トークン数。", 4096),
    "max_output_tokens": key("integer|null", "The longest answer, in tokens.", "回答の最大トークン数。", 4096),
    "blocked_patterns": key("strings", "Regular expressions that end a run.", "実行を終了させる正規表現。"),
    "warn_patterns": key("strings", "Regular expressions that are reported.", "警告する正規表現。"),
    "input_checks": key("strings", _PLACES, "入力を検査する関数 (module:name)。"),
    "output_checks": key("strings", _PLACES, "回答を検査する関数 (module:name)。"),
    "result_checks": key("strings", _PLACES, "ツールの結果を検査する関数 (module:name)。"),
    "window": key("integer", "Characters that a check is sure to see together.", "検査が必ずまとめて見る文字数。", 500),
    "longest_match": key("integer", "The most characters to delay while a pattern can still match.", "パターンに一致する可能性がある間、表示を遅らせる最大の文字数。", 4000),
    "check_seconds": key("number", "The timeout of a check, in seconds.", "検査のタイムアウト (秒)。", 60),
    "tools": by_name("Rules by tool; * for all others.", "ツールごとの規則。* はその他すべて。", block("", "", {
        "allowed": key("boolean", "Whether the tool can be used.", "ツールを使えるかどうか。"),
        "max_calls": key("integer", "The most calls in a turn.", "1 ターンの呼び出し回数の上限。"),
        "arguments": key("object", "A pattern for each argument; the whole value must match.", "引数ごとのパターン。値全体が一致する必要があります。", **_TEXT_BY_NAME),
    })),
}, make=("policies", makers.guardrails))
PRIVACY = either(
    "Hides personal data from the model: true, or a mapping.", "個人データをモデルに見せません。true またはマッピング。",
    key("boolean"), block("", "", {
        "kinds": by_name("What to do with each kind of data; * for all others.", "データの種類ごとの扱い。* はその他すべて。", {
            "anyOf": [_TREATMENT, block("", "", dict.fromkeys(("input", "results", "output", "arguments"), _TREATMENT))],
        }),
        "patterns": key("object", "Regular expressions by kind.", "種類ごとの正規表現。", **_TEXT_BY_NAME),
        "detectors": key("strings", "Functions that find data in a text, as module:name.", "テキストからデータを見つける関数 (module:name)。"),
    }), default=False, make=("policies", makers.privacy))
FLOW = either(
    "What text from outside can cause: off, everything (every acting call waits for the user), strict, or a mapping.",
    "外部のテキストによる操作の制限: off、everything (操作はすべてユーザーに確認)、strict、またはマッピング。",
    _MODE, block("", "", {
        "mode": _MODE,
        "labels": by_name("Labels by tool.", "ツールごとのラベル。", block("", "", {
            "role": key("string", "Whether the tool reads, acts, or changes only the user's own data.", "読み取り、操作、本人のデータだけの変更のどれか。", enum=[*ROLES]),
            "parameters": by_name("What each parameter is (default: target).", "引数の役割 (既定: target)。", key("string", enum=[*PARAMETER_ROLES])),
            "result": either("trusted, untrusted, or the names of trusted fields.", "trusted、untrusted、または信頼するフィールド名。", key("string"), key("strings"), default="untrusted"),
            "private": key("boolean", "Whether the results are private.", "結果が非公開かどうか。"),
            "verbs": key("strings", "The words with which a user asks for the tool.", "ユーザーがこのツールを頼むときの言葉。"),
            "prose": key("string", "Whether content can come from elsewhere.", "内容が外部のものでもよいか。", enum=["strict", "lenient"]),
        })),
        "words": key("string", "A text that counts as the user's words.", "ユーザーの発言とみなすテキスト。"),
    }), make=("policies", makers.flow))
FALLBACK = block("What to do when a tool fails.", "ツールが失敗したときの動作。", {
    "max_retries": key("integer", "The number of retries.", "再試行の回数。", 2),
    "backoff": key("number", "Seconds before the first retry, doubled each time.", "最初の再試行までの秒数。毎回 2 倍になります。", 0.5),
    "longest_wait": key("number", "The longest pause, in seconds.", "待ち時間の上限 (秒)。"),
    "degrade": key("boolean", "In the end, answer without the tool.", "最後はツールなしで回答します。", True),
    "tools": key("object", "Which tool to try instead of which.", "代わりに試すツール。", **_TEXT_BY_NAME),
}, make=("policies", makers.fallback))
CACHE = either(
    "Caches replies of models and results of pure tools: true, or a mapping.",
    "モデルの応答と pure なツールの結果をキャッシュします。true またはマッピング。",
    key("boolean"), block("", "", {
        "models": key("boolean", "Replies of models.", "モデルの応答。", True),
        "tools": key("boolean", "Results of tools that are declared pure.", "pure と宣言したツールの結果。", True),
        "ttl": key("string|number|null", "How long an entry is used; null: without end.", "有効期間。null は無期限。", "1d"),
        "size": key("string|integer", "The largest content of the file.", "ファイルの最大サイズ。", "200MB"),
        "path": key("string", "The file, from this file's folder.", "ファイル (このファイルのフォルダーから)。", ".kaname/cache.db"),
        "any_temperature": key("boolean", "Also replies at a temperature above 0.", "temperature が 0 より大きい応答も。", False),
    }), default=False, make=("policies", makers.cache))
RESULTS = either(
    "Lets the model read on in long results of tools: true, or a mapping.",
    "ツールの長い結果の続きをモデルが読めるようにします。true またはマッピング。",
    key("boolean"), block("", "", {
        "shown": key("integer", "Characters of a result that the model sees.", "モデルに見せる文字数。", 40000, minimum=500),
        "forget_after": key("integer", "Tokens of results after which older ones are left out.", "このトークン数を超えると、古い結果を省きます。", minimum=1),
        "keep": key("integer", "The number of recent results that are never left out.", "必ず残す最近の結果の数。", 3, minimum=0),
    }), default=False, make=("context", makers.results))
TOOL_SEARCH = block("How the model looks up tools if there are many.", "ツールが多いときの検索方法。", {
    "above": key("integer|null", "From how many tools on; null: never.", "ツールがこの数を超えたら。null は検索しません。", 30, minimum=0),
    "always": key("strings", "Tools that the model always sees.", "常に見せるツール。"),
    "native": key("boolean", "Use the provider's own tool search, where the model has one.", "モデルにあれば、プロバイダーのツール検索を使います。"),
}, make=("tools", makers.tool_search))
BUDGET = block(
    "Limits on money, tokens and calls, such as $5/day, 200k tokens/hour or [$50/month, 100 calls/day].",
    "費用・トークン・呼び出しの上限。例: $5/day、200k tokens/hour、[$50/month, 100 calls/day]。", {
        "run": _amount("Of each run, with its children.", "実行ごと (子の実行を含む)。"),
        "session": _amount("Of each session.", "セッションごと。"),
        "user": _amount("Of each user, over all agents.", "ユーザーごと (すべてのエージェント)。"),
        "agent": _amount("Of the agent, over all users.", "エージェントごと (すべてのユーザー)。"),
        "total": _amount("Of everything that the journal records.", "ジャーナル全体。"),
        "tools": key("object", "Calls of single tools, by name.", "ツールごとの呼び出し。", additionalProperties=_AMOUNT),
        "unpriced": key("", "Models whose price is unknown.", "価格が不明なモデルの扱い。", "refuse", enum=["refuse", "allow"]),
        "longest_reply": key("integer", "Tokens of a reply, if max_tokens is not set.", "max_tokens がないときの応答のトークン数。",
                             16384, minimum=1),
        "zone": key("string", "The time zone in which days begin, such as Asia/Tokyo.", "日付のタイムゾーン。例: Asia/Tokyo。", "UTC"),
    })
LIMITS = block("Limits on what runs spend, and on how fast. Runs that reach a rate wait.", "費用と速度の上限。速度の上限では待ちます。", {
    "budget": BUDGET,
    "requests": key("string", "Requests to each provider and key, such as 60/min.", "プロバイダーとキーごとのリクエスト数。例: 60/min。", check=parsed_by(lambda value: read_rate(value, what="requests"))),
    "tokens": key("string", "Tokens of each provider and key, such as 100k/min.", "プロバイダーとキーごとのトークン数。例: 100k/min。", check=parsed_by(lambda value: read_rate(value, what="tokens"))),
    "at_once": key("integer", "Model calls at the same time, for each provider and key.", "プロバイダーとキーごとの同時呼び出し数。", minimum=1, check=parsed_by(read_at_once)),
    "machine": block("Per cent above which new work waits.", "新しい処理を待たせる使用率 (%)。", {
        "cpu": key("number", "Of the processors.", "CPU。"),
        "memory": key("number", "Of the memory.", "メモリー。"),
        "gpu": key("number", "Of the graphics processors.", "GPU。"),
        "priority": key("integer", "A higher priority goes first.", "大きいほど優先します。", 0),
    }),
}, make=("policies", makers.limits))
PERMISSION = block("A rule. Values are patterns with *, or lists of them.", "規則。値は * を使えるパターン、またはそのリスト。", {
    "name": key("string", "The name, for refusals.", "拒否するときに示す名前。"),
    "effect": key("string", "deny wins over allow.", "deny は allow より優先します。", "allow", enum=["allow", "deny"]),
    "user": _patterns("Users.", "ユーザー。"),
    "role": _patterns("Roles of the user.", "ユーザーの役割。"),
    "agent": _patterns("Agents that make the call.", "呼び出すエージェント。"),
    "path": _patterns("Agents that had the work one after the other, such as desk/billing.", "作業が渡った順のエージェント。例: desk/billing。"),
    "tool": _patterns("Tools that can be used.", "使えるツール。"),
    "handoff": _patterns("Agents to which work can be transferred or delegated.", "引き継ぎや委任の相手のエージェント。"),
    "data": _patterns("Ids of data.", "データの ID。"),
    "action": _patterns("Actions on the data (default: read).", "データの操作 (既定: read)。"),
    "where": key("object", "Conditions on arguments: a pattern, a list of values, or a mapping with equals, one_of, starts_with, less_than, at_most, greater_than, at_least.",
                 "引数の条件: パターン、値のリスト、または equals、one_of、starts_with、less_than、at_most、greater_than、at_least のマッピング。"),
})
PERMISSIONS = either(
    "What users and agents are allowed to do; everything else is refused. A mapping, or a file with one.",
    "ユーザーとエージェントに許可する操作。それ以外は拒否します。マッピング、またはそのファイル。",
    key("string", "A file, from this file's folder.", "ファイル (このファイルのフォルダーから)。"), block("", "", {
        "rules": key("array", "What is allowed and denied.", "許可と拒否の規則。", items=PERMISSION),
        "roles": by_name("Roles by user.", "ユーザーごとの役割。", _PATTERNS),
        "resources": by_name("The data that calls read, by tool, such as order:{order_id}.", "呼び出しが読むデータ (ツールごと)。例: order:{order_id}。", key("string")),
        "cedar": key("string", "A file with Cedar policies instead of rules, from this file's folder.", "規則の代わりに使う Cedar のファイル。"),
        "entities": key("string", "A JSON file with entities for Cedar, from this file's folder.", "Cedar のエンティティの JSON ファイル。"),
    }), make=("policies", makers.permissions))
_OAUTH = block("How to sign in.", "サインインの方法。", {
    "scopes": key("string|array", "The scopes to ask for.", "要求するスコープ。"),
    "client_id": key("string", "The id of a client that was registered before.", "登録済みのクライアントの ID。"),
    "client_secret": key("string", "Its secret; better from the environment.", "シークレット。環境変数を推奨します。"),
    "client_metadata_url": key("string", "The address of the client's metadata.", "クライアントのメタデータのアドレス。"),
    "issuer": key("string", "With client_credentials: the only server that the secret is sent to.", "client_credentials で、シークレットを送る唯一のサーバー。"),
    "callback_port": key("integer", "The port on this machine to which the browser returns.", "ブラウザーが戻るこのマシンのポート。"),
    "grant": key("string", "browser, or client_credentials for a program without a person.", "browser、または人のいないプログラム向けの client_credentials。", enum=["browser", "client_credentials"]),
})
_SERVER = block("A tool server (MCP): a command to start, or an address.", "ツールサーバー (MCP): 起動するコマンド、またはアドレス。", {
    "command": key("string", "The program to start.", "起動するプログラム。"),
    "args": key("array", "Its arguments.", "引数。", items={"type": ["string", "number"]}),
    "env": key("object", "Variables in addition to the usual ones.", "追加の環境変数。", additionalProperties={"type": ["string", "number", "boolean"]}),
    "cwd": key("string", "The folder to start it in.", "起動するフォルダー。"),
    "url": key("string", "The address of a running server: http:// or https://.", "動作中のサーバーのアドレス (http://、https://)。"),
    "headers": key("object", "HTTP headers.", "HTTP ヘッダー。", **_TEXT_BY_NAME),
    "type": key("string", "The transport, as other clients write it.", "接続方式 (ほかのクライアントの書き方)。", enum=_TRANSPORTS),
    "transport": key("string", "The transport.", "接続方式。", enum=_TRANSPORTS),
    "timeout": key("string|number|null", "Of a call: seconds, or a text such as 30s; null: none.", "呼び出しのタイムアウト: 秒数、または 30s など。null は無制限。", check=_DURATION),
    "start_timeout": key(_TIME, "The time until it must be ready.", "起動のタイムアウト。", check=_DURATION),
    "required": key("boolean", "Runs do not start without it.", "このサーバーがないと実行を始めません。"),
    "disabled": key("boolean", "Do not use it.", "使いません。"),
    "library": key("boolean", "Offer its resources and prompts as tools.", "リソースとプロンプトもツールとして見せます。"),
    "tools": key("strings", "The tools to use (default: all).", "使うツール (既定: すべて)。"),
    "exclude_tools": key("strings", "Tools that are not used.", "使わないツール。"),
    "roots": key("strings", "Folders that the server is told of.", "サーバーに伝えるフォルダー。"),
    "sampling": key("boolean", "It can ask the agent's model, at the agent's cost.", "エージェントの費用でモデルを使えます。"),
    "protocol": key("string", "auto, or legacy for a server whose tools ask their user in the older way.", "auto、または古い方法でユーザーに確認するサーバー向けの legacy。", enum=["auto", "legacy"]),
    "auth": either("oauth, or a mapping with what is known for it.", "oauth、またはその設定のマッピング。", key("string", enum=["oauth"]), _OAUTH),
}, check=_check_server)
_SERVERS = by_name("Tool servers (MCP) by name.", "ツールサーバー (MCP)。名前ごと。", _SERVER)
_SERVER_FILE = key("string", "The configuration file of another MCP client, from this file's folder.", "ほかの MCP クライアントの設定ファイル。")
_HTTP = "openai anthropic other"
PROVIDER = block("How to reach a provider.", "プロバイダーへの接続。", {
    "model": key("string", "The name of the model.", "モデルの名前。"),
    "api_key": key("string", "The key; better from the environment: ${OPENAI_API_KEY}.", "キー。環境変数を推奨: ${OPENAI_API_KEY}。", of=_HTTP),
    "base_url": key("string", "The address of a server with the same protocol.", "同じプロトコルのサーバーのアドレス。", of=_HTTP),
    "headers": key("object", "HTTP headers.", "HTTP ヘッダー。", of=_HTTP),
    "settings": key("object", "Sent with every request: temperature, max_tokens, …", "毎回送る設定: temperature、max_tokens など。", of=f"{_HTTP} local"),
    "tool_mode": key("string", "openai, local: how the model calls tools.", "openai、local: ツールの呼び出し方。", of="openai local", enum=["auto", "native", "constrained", "text"]),
    "plan_first": key("boolean", "openai, local: a model that is held to a schema plans before its first call.", "openai、local: スキーマに従うモデルが、最初の呼び出しの前に計画します。", True, of="openai local"),
    "prompt_cache": key("string", "anthropic: how long a prompt is kept in its cache.", "anthropic: プロンプトのキャッシュの期間。", "5m", of="anthropic", enum=["5m", "1h", "off"]),
    "takes": key("strings", "openai: media types that the model accepts, such as image/; []: only text.", "openai: モデルが受け付けるメディアタイプ。例: image/。[] はテキストだけ。", of="openai"),
    "threads": key("integer", "local: the number of threads.", "local: スレッド数。", of="local"),
    "context": key("integer", "local: the longest prompt, in tokens.", "local: プロンプトの最大トークン数。", of="local"),
})
_ONE_MODEL = [
    key("string", "provider/model, local, or local/FILE.gguf.", "provider/model、local、または local/FILE.gguf。", check=check_model),
    {**PROVIDER, **key("", "A model with a key or an address of its own.", "専用のキーやアドレスを持つモデル。", check=_check_own_model), "required": ["model"]},
]
_ONE_MODEL[1]["properties"] = {**PROVIDER["properties"], "model": key("string", check=check_model)}
_EQUALS = key("array", items={"anyOf": _ONE_MODEL}, check=_check_models)
_MODEL = either(
    "provider/model, local, or local/FILE.gguf; in a list, the next is asked when one fails. "
    "A list inside the list holds equals, over which the calls are spread.",
    "provider/model、local、または local/FILE.gguf。リストでは、失敗すると次のモデルを使います。"
    "リストの中のリストは同等のモデルで、呼び出しを分散します。",
    *_ONE_MODEL, key("array", items={"anyOf": [*_ONE_MODEL, _EQUALS]}, check=_check_models))
STOPS = block("Limits. Whichever is reached, the work so far is kept.", "上限。達しても、それまでの結果は残ります。", {
    "max_steps": key("integer|null", "Model calls in a turn.", "1 ターンのモデル呼び出し回数。", 10, check=_RULE["max_steps"]),
    "cost": key("string|number|null", "US dollars, such as $0.50.", "費用 (米ドル)。例: $0.50。", check=_RULE["cost"]),
    "deadline": key("string|number|null", "Working time, such as 5m.", "作業時間。例: 5m。", check=_RULE["deadline"]),
    "no_repeats": key("integer|null", "The most repetitions of the same call.", "同じ呼び出しの回数。", 2, check=_RULE["no_repeats"]),
    "per_tool": key("integer|null", "The most calls of each tool.", "ツールごとの呼び出し回数。", check=_RULE["per_tool"]),
}, make=("stops", makers.stops))
_KEPT = either(
    "How long ended runs are kept: a time such as 90d, forever, or times by how they ended.",
    "終了した実行を残す期間: 90d などの期間、forever、または終わり方ごとの期間。",
    key("string", check=parsed_by(keep_seconds)), key("number", check=parsed_by(keep_seconds)),
    block("`runs` for all that are not named.", "`runs` はその他すべて。", dict.fromkeys(("runs", *STATUSES), _CHECKED_TIME)),
    default="forever")
AGENT = block("An agent.", "エージェント。", {
    "model": _MODEL,
    "instructions": key("string", "The system prompt.", "システムプロンプト。"),
    "tools": key("strings", "module:function, FILE.py, calculator, database:FILE-OR-URL, search, senses.", "module:function、FILE.py、calculator、database:ファイルか URL、search、senses。"),
    "tool_search": TOOL_SEARCH,
    "mcp_servers": either("Servers of its own, by name; or a list of names of those below, if not all of them.", "専用のサーバー (名前ごと)。または下のサーバーのうち使うものの名前のリスト。",
                          key("strings"), _SERVERS, _SERVER_FILE),
    "stops": STOPS,
    "settings": key("object", "Sent with every request: temperature, max_tokens, …", "毎回送る設定: temperature、max_tokens など。"),
    "cache": CACHE,
    "policies": key("strings", "Policies of your own, as module:name, outermost first.", "独自のポリシー (module:name)。外側から順に。", make=("policies", makers.policies)),
    "guardrails": GUARDRAILS,
    "flow": FLOW,
    "privacy": PRIVACY,
    "approve": key("strings", "Tools that a person is asked about first.", "使う前に人に確認するツール。", make=("policies", makers.approve)),
    "approval": block("How these questions are asked.", "その確認の方法。", {
        "by": key("string", "other: not the user who started the run.", "other: 実行を始めたユーザー以外。", enum=["other"]),
        "expires": key(_TIME, "After this time, such as 1h, the question is answered with `then`.", "この時間 (1h など) を過ぎると `then` で回答します。"),
        "then": key("string", "The answer then.", "そのときの回答。", "refuse", enum=["refuse", "approve"]),
    }),
    "equals": key("array", "Lists of tools that do the same; the one that did best in past runs is used.", "同じことをするツールのリスト。過去の実行で最もよかったものを使います。", items=key("strings"),
                  make=("policies", makers.equals)),
    "fallback": FALLBACK,
    "limits": LIMITS,
    "project": key("boolean|string", "A folder whose AGENTS.md and skills the agent is told of; true: this one.", "AGENTS.md とスキルを読むフォルダー。true はこのフォルダー。", make=("context", makers.project)),
    "compact": key("integer", "Tokens. A longer conversation is summarized.", "会話がこのトークン数を超えると要約します。", make=("context", makers.compact)),
    "results": RESULTS,
    "todo": key("boolean", "The model keeps a list of things to do, which people see.", "モデルが作業リストを作り、ユーザーにも見せます。", make=("context", makers.todo)),
    "memory": key("string", "What is remembered: by rules (what the user states), by the model (which writes it down), "
                  "nothing (only by tools).", "記憶の作り方: rules (ユーザーの発言から)、model (モデルが書く)、nothing (ツールだけ)。", enum=["rules", "model", "nothing"], make=("context", makers.memory)),
    "lessons": key("string", "What is learned from failures: suggest (a person approves), apply (if a trial shows that it helps), "
                   "off.", "失敗から得る教訓: suggest (人が承認)、apply (試行で効果があれば適用)、off。", enum=["off", "suggest", "apply"], make=("context", makers.lessons)),
    "approvers_see": key("string", "What people see who answer its questions for other users: nothing, the call, also this turn "
                         "or the run.", "ほかのユーザーの確認に回答する人に見せる内容: なし、呼び出し、ターン、実行。", "call", enum=["nothing", "call", "turn", "run"]),
    "team": key("strings", "Other agents of this file, to transfer or delegate work to.", "作業を引き継ぐ、または委任する、このファイルのほかのエージェント。"),
    "background": key("boolean", "The team can also work in the background.", "チームがバックグラウンドでも作業できます。", False),
    "keep": _KEPT,
})
_LEVEL = key("string", "debug, info, warning or error.", "debug、info、warning、error。", enum=["debug", "info", "warning", "error"])
_CONTENT = key("boolean", "Also messages, and arguments and results of tools.", "発言と、ツールの引数・結果も。", False)
TRACE = block("Where runs are reported.", "トレースの出力先。", {
    "console": either("Standard error: a level, or a mapping.", "標準エラー: レベル、またはマッピング。",
                      _LEVEL, block("", "", {"level": _LEVEL, "content": _CONTENT})),
    "file": either("A file with one JSON object per line: its path from this file's folder, or a mapping.", "1 行に 1 件の JSON を書くファイル: パス、またはマッピング。", key("string"), block("", "", {
        "path": key("string", "The file.", "ファイル。"),
        "level": _LEVEL,
        "content": _CONTENT,
        "max_bytes": key("integer", "The size after which another file is begun.", "次のファイルに移るサイズ (バイト)。", 10000000),
        "keep": key("integer", "The number of old files that stay.", "残す古いファイルの数。", 5),
    }, required=["path"])),
    "otel": either("OpenTelemetry (OTLP over HTTP): an address such as http://localhost:4318, or a mapping.",
                   "OpenTelemetry (OTLP/HTTP): http://localhost:4318 などのアドレス、またはマッピング。", key("string"), block("", "", {
        "endpoint": key("string", "The address.", "アドレス。"),
        "content": _CONTENT,
        "headers": key("object", "HTTP headers.", "HTTP ヘッダー。", **_TEXT_BY_NAME),
        "service": key("string", "The name of the service.", "サービスの名前。", "kaname"),
    })),
})
_QUEUED = {
    "agent": key("string", "The agent or workflow (default: the first agent).", "エージェントかワークフロー (既定: 最初のエージェント)。"),
    "session_id": key("string", "The session.", "セッション。"),
    "user_id": key("string", "The user.", "ユーザー。"),
    "priority": key("integer", "Runs with a higher priority are started first.", "大きいほど先に開始します。", 0),
    "key": key("string", "What a limit per key counts.", "キーごとの上限で数える単位。"),
    "queue": key("string", "The queue.", "待ち行列。", "default"),
}
SCHEDULE = block("A run at certain times: set cron, every or at.", "決まった時刻の実行: cron、every、at のどれかを指定します。", {
    "input": key("string|object", "The input of the run; for a workflow, its parameters.", "実行の入力。ワークフローではパラメーター。"),
    "cron": key("string", "minute hour day month weekday, such as 0 9 * * 1-5.", "分 時 日 月 曜日。例: 0 9 * * 1-5。"),
    "tz": key("string", "The time zone of cron and at, such as Asia/Tokyo.", "cron と at のタイムゾーン。例: Asia/Tokyo。", "UTC"),
    "every": key(_TIME, "An interval such as 15m.", "間隔。例: 15m。"),
    "at": key("string", "One time, in quotes: 2026-12-01T09:00.", "1 回だけの時刻 (引用符で囲みます): 2026-12-01T09:00。"),
    "missed": key("string", "Times without a worker: skip, one run for all, or all.", "ワーカーがなかった時刻: skip (飛ばす)、one (まとめて 1 回)、all (すべて)。", "one", enum=[*MISSED]),
    **_QUEUED,
}, required=["input"])
TRIGGER = block("A webhook, POST /hooks/NAME of `kaname serve`, signed as Standard Webhooks says.", "Webhook (`kaname serve` の POST /hooks/名前)。Standard Webhooks の署名が必要です。", {
    "secret_env": key("string", "The environment variable with the secret.", "シークレットの環境変数。"),
    "input": key("string", "The input; {body} or {body.issue.title} is replaced by what the sender wrote.", "入力。{body} や {body.issue.title} は送信された内容に置き換わります。"),
    **_QUEUED,
}, required=["secret_env"])
NOTIFY = block("Tell people that a question waits: by one of url, command and mail.", "確認待ちの通知: url、command、mail のどれか。", {
    "url": key("string", "A webhook of yours, signed as Standard Webhooks says.", "自分の Webhook (Standard Webhooks の署名付き)。"),
    "secret_env": key("string", "The environment variable with the secret of the webhook.", "Webhook のシークレットの環境変数。"),
    "command": key("strings", "A program and its arguments; it gets JSON on standard input.", "プログラムと引数。標準入力に JSON を渡します。"),
    "mail": key("strings", "Mail addresses.", "メールアドレス。"),
    "from": key("string", "The sender of mails.", "メールの差出人。"),
    "smtp": key("string", "The mail server, with its port.", "メールサーバーとポート。", "localhost:25"),
    "user_env": key("string", "The environment variable with the name at the mail server; it must offer STARTTLS.", "メールサーバーのユーザー名の環境変数。STARTTLS が必要です。"),
    "password_env": key("string", "The environment variable with the password.", "パスワードの環境変数。"),
    "agents": key("strings", "The agents whose questions count (default: all).", "対象のエージェント (既定: すべて)。"),
    "role": key("string", "The role of the people who are notified: only questions that it can answer.", "通知する人の役割。その役割が回答できる確認だけを通知します。", "approve:all"),
    "user": key("string", "The user who is notified; with the role approve, of questions of their own runs.", "通知するユーザー。役割が approve なら、本人の実行の確認だけ。"),
    "every": key(_TIME, "How often they are notified again until it is answered.", "回答されるまで再通知する間隔。", "1h"),
    "link": key("string", "The address of this server, such as https://kaname.example.com.", "サーバーのアドレス。"),
}, required=["link"])
SERVE = block("Options of `kaname serve`. The command line overrides them.", "`kaname serve` の設定。コマンドラインが優先します。", {
    "host": key("string", "The address to listen on.", "待ち受けるアドレス。", "127.0.0.1"),
    "port": key("integer", "The port.", "ポート。", 8000),
    "workers": key("integer", "The number of processes.", "プロセス数。", 1),
    "users": key("string", "The users file, from this file's folder.", "ユーザーのファイル。"),
    "hosts": key("strings", "Names under which the server is reached.", "サーバーのホスト名。"),
    "origins": key("strings", "Pages that can use it, such as https://example.org.", "利用を許可するページ。例: https://example.org。"),
    "proxies": key("strings", "Addresses or networks of proxies whose X-Forwarded-For is believed.", "X-Forwarded-For を信用するプロキシのアドレスかネットワーク。"),
    "session": key(_TIME, "How long a sign-in to the page lasts, such as 8h.", "ページへのサインインの有効期間。例: 8h。", "12h"),
    "oidc": block("Sign-in through an OpenID provider. Needs the extra `oidc`.", "OpenID プロバイダーでのサインイン。追加機能 `oidc` が必要です。", {
        "issuer": key("string", "The address of the provider, https.", "プロバイダーのアドレス (https)。"),
        "client_id": key("string", "The id of this server at the provider.", "このサーバーの ID。"),
        "client_secret_env": key("string", "The environment variable with the client secret.", "クライアントシークレットの環境変数。"),
        "groups": key("object", "Roles by group.", "グループごとの役割。", additionalProperties={"anyOf": [{"type": "string"}, key("strings")]}),
        "user": key("string", "The claim with the name of the user.", "ユーザー名のクレーム。", "sub"),
        "groups_claim": key("string", "The claim with the groups.", "グループのクレーム。", "groups"),
        "scopes": key("strings", "The scopes to ask for.", "要求するスコープ。", ["openid", "email", "profile"]),
        "redirect_uri": key("string", "Where the provider sends the browser back: https://…/signin/callback.", "ブラウザーの戻り先: https://…/signin/callback。"),
        "name": key("string", "The name on the page (default: the host of the provider).", "ページに表示する名前 (既定: ホスト名)。"),
    }, required=["issuer", "client_id", "groups"]),
    "grace": key("number", "Seconds that tool calls under way have to end when the server shuts down.", "サーバーの終了時に、動作中のツールの呼び出しを待つ秒数。", 10, minimum=0),
    "on_disconnect": key("string", "What becomes of a run if a client of another protocol closes its stream.", "ほかのプロトコルのクライアントが接続を閉じたときの動作。", "stop", enum=["stop", "continue"]),
})
AUDIT = either("The audit log of `kaname serve`: true, false, or a mapping.", "`kaname serve` の監査ログ: true、false、またはマッピング。", key("boolean"), block("", "", {
    "path": key("string", "The file, from this file's folder (default: audit.log next to the journal).", "ファイル (既定: ジャーナルの隣の audit.log)。"),
    "head": key("string", "The file for the number of entries and the last hash (default: the path with .head).", "件数と最後のハッシュのファイル (既定: パスに .head を付けたもの)。"),
}), default=True)
_SENSE = {"generate": "", "edit": "", "transcribe": " or local", "speak": " or local"}
SENSES = block("The tools `senses`, for pictures, sound and video.", "画像・音声・動画のツール `senses`。", {
    "model": key("string", "A model that sees: it describes pictures and summarizes videos.", "画像を説明し、動画を要約するモデル。"),
    **{
        task: {**_PATTERNS, **key("", f"Who does it: openai/MODEL{here}; several in order.", "使うモデル。複数なら順に試します。")}
        for task, here in _SENSE.items()
    },
    "prices": by_name("Prices by provider, in US dollars.", "プロバイダーごとの価格 (米ドル)。", block("", "", {
        "picture": key("number", "Of a picture.", "画像 1 枚。"),
        "minute": key("number", "Of a minute of sound that is transcribed.", "文字起こし 1 分。"),
        "characters": key("number", "Of a thousand characters that are spoken.", "読み上げ 1,000 文字。"),
    })),
    "longest": key(_TIME, "The longest sound or video.", "音声や動画の最大の長さ。", "1h"),
    "most_bytes": key("integer", "The largest file, in bytes.", "ファイルの最大サイズ (バイト)。", 50000000, minimum=1),
    "folder": key("string", "A folder whose files the tools can open, too.", "ツールが開けるフォルダー。"),
    "urls": key("boolean", "The tools can fetch public web addresses.", "公開 Web アドレスを取得できます。", False),
})
LLM = key("object", "The short form, for one agent: a provider, and a block with its name.",
          "エージェントが一つのときの短い書き方: プロバイダーと、その名前の設定。", required=["provider"], properties={
    "provider": key("string", "The provider.", "プロバイダー。", check=check_provider),
    "temperature": key("number|null", "null: the provider's own.", "null はプロバイダーの既定値。", 0.7, minimum=0),
    "max_tokens": key("integer|null", "Of a reply; null: the provider's own.", "応答の最大トークン数。null はプロバイダーの既定値。", 1000, minimum=1),
}, additionalProperties=PROVIDER)
TABLE: Row = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "agents": by_name("Agents by name; the first is used where none is named.", "エージェント (名前ごと)。指定がなければ最初のもの。", AGENT),
        "models": by_name("Keys and addresses by provider.", "プロバイダーごとのキーとアドレス。", PROVIDER, check=_check_providers),
        "llm": LLM,
        "search": block("The tool `search`.", "ツール `search`。", {
            "top_k": key("integer", "Passages that it returns.", "返す箇所の数。", 5, minimum=1)}),
        "database": block("The tool `database`.", "ツール `database`。", {
            "max_rows": key("integer", "Rows that it returns.", "返す行数。", 100, minimum=1)}),
        "senses": SENSES,
        "mcp_servers": either("Tool servers (MCP) by name.", "ツールサーバー (MCP)。名前ごと。", _SERVERS, _SERVER_FILE),
        "workflows": key("strings", "Workflow files that `kaname serve` serves, from this file's folder.", "`kaname serve` が公開するワークフローファイル。"),
        "limits": {**LIMITS, **key("", "Limits of all agents that have no `limits` of their own.", "`limits` を持たないすべてのエージェントの上限。", make=("policies", makers.limits))},
        "permissions": PERMISSIONS,
        "journal": key("string", "Where runs are recorded: a file, from this file's folder, or a database (postgresql://…).", "実行の記録先: ファイル、または postgresql://…。"),
        "encryption": block("Encrypt the journal, memories, index and cache with a key: name one of these.", "ジャーナル・記憶・索引・キャッシュの暗号化。キーをどちらか一つで指定します。", {
            "key_file": key("string", "A file with the key, from this file's folder; only its owner can read it.", "キーのファイル。所有者だけが読めるようにします。"),
            "keyring": key("string", "The name of the key in the keyring of the system.", "システムのキーリングでのキーの名前。"),
        }, check=_check_encryption),
        "keep": _KEPT,
        "schedules": by_name("Runs at certain times, by name.", "決まった時刻の実行 (名前ごと)。", SCHEDULE, check=_check_work),
        "triggers": by_name("Webhooks by name.", "Webhook (名前ごと)。", TRIGGER, check=lambda value, wrong: _check_work(value, wrong, hooks=True)),
        "notify": by_name("Notifications of waiting questions, by name.", "確認待ちの通知 (名前ごと)。", NOTIFY),
        "serve": SERVE,
        "audit": AUDIT,
        "trace": TRACE,
    },
}
# fmt: on
_SHARED = ("limits", "permissions")  # keys of the file that make a part of each agent
PARTS: dict[str, tuple[str, Callable[..., Any]]] = {
    name: row[MORE].make
    for name, row in [*AGENT["properties"].items(), *((name, TABLE["properties"][name]) for name in _SHARED)]
    if MORE in row and row[MORE].make
}


def schema(japanese: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of `kaname.yaml`, with its descriptions in English or Japanese."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kaname.yaml"}
    return {**head, **plain_schema(TABLE, japanese)}


def plain_schema(row: Any, japanese: bool = False) -> Any:
    """Return a row, and the rows in it, without the columns that JSON Schema does not have."""
    if isinstance(row, list):
        return [plain_schema(one, japanese) for one in row]
    if not isinstance(row, dict):
        return row
    more = row.get(MORE)
    plain = {name: plain_schema(value, japanese) for name, value in row.items() if not isinstance(value, More)}
    return {**plain, "description": more.japanese} if japanese and isinstance(more, More) and more.japanese else plain


def all_keys(row: Row = TABLE, where: str = "") -> Iterator[tuple[str, Row]]:
    """Yield the path and the row of each key. NAME stands for names of the user's own."""
    forms = [row, *row.get("anyOf", ())]
    for name, inner in [pair for form in forms for pair in form.get("properties", {}).items()]:
        yield f"{where}{name}", inner
        yield from all_keys(inner, f"{where}{name}.")
    for each in [form["additionalProperties"] for form in forms if isinstance(form.get("additionalProperties"), dict)]:
        yield from all_keys(each, f"{where}NAME.")
    for items in [form["items"] for form in forms if form.get("items", {}).get("properties")]:
        yield from all_keys(items, f"{where}N.")


@cache
def plain_values() -> frozenset[str]:
    """Return the names of keys with a number or a truth value: there, `${NAME}` in quotes is one, and not a text."""
    return frozenset(
        path.rpartition(".")[2]
        for path, row in all_keys()
        if {"integer", "number", "boolean"} & {*([row["type"]] if isinstance(row.get("type"), str) else row.get("type", ()))}
    )
