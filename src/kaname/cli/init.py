"""`kaname init`: write a configuration file to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..core.install import this_command
from .main import DONE, FAILED
from .messages import say
from .terminal.screen import Screen

TEMPLATE = """# Your agents. `kaname config check` reports every error; `kaname run "…"` uses the first agent.
# For an editor that supports JSON Schema: kaname config schema > .kaname-schema.json (also docs/kaname.schema.json)
# yaml-language-server: $schema=.kaname-schema.json

agents:
  helper:
    model: local                    # or openai/NAME, anthropic/NAME, PROVIDER/NAME (LiteLLM), local/FILE.gguf
    instructions: Be brief and kind.
    tools: []                       # "module:function", "FILE.py" for all tools in it, or calculator
    # approve: [send_mail]          # ask a person before these tools run
    # guardrails: {blocked_patterns: ['(?i)password\\s*[:=]'], tools: {send_mail: {max_calls: 1}}}
    # fallback: {max_retries: 2}     # if a tool fails: retry it, then answer without it
    stops:                          # limits; when one is reached, the work so far is kept
      max_steps: 20
      deadline: 10m
      # cost: $1
    # settings: {temperature: 0}
    # memory: rules                 # recall in later conversations what the user says; model: a model writes the memories
    # compact: 24000                # tokens: summarize the old part of a longer conversation
    # project: true                 # give the model AGENTS.md and skills/ next to this file

# models:                           # keys and addresses by provider; ${NAME} comes from the environment
#   openai: {api_key: "${OPENAI_API_KEY}", base_url: "${OPENAI_BASE_URL:-https://api.openai.com/v1}"}

# mcp_servers:                      # tool servers, for all agents
#   files: {command: npx, args: ["-y", "@modelcontextprotocol/server-filesystem", "."]}
#   web: {url: "http://127.0.0.1:8000/mcp"}

# journal: runs.db                  # where runs are recorded (default: in .kaname/ next to this file)
# keep: 90d                         # delete ended runs after this time (default: keep them forever)
# trace: {console: info, file: logs/trace.jsonl}     # record what runs do; otel: http://localhost:4318
# serve: {port: 8000}              # settings of `kaname serve`
# workflows: [order.yaml]          # workflow files to serve as well: `kaname workflow check order.yaml`
"""
_NIHONGO = """# エージェントの設定。`kaname config check` はエラーをすべて示し、`kaname run "…"` は先頭のものを使います。
# JSON Schema に対応したエディター用: kaname config schema > .kaname-schema.json (docs/kaname.schema.json も同じもの)
# yaml-language-server: $schema=.kaname-schema.json

agents:
  helper:
    model: local                    # または openai/名前、anthropic/名前、プロバイダー/名前 (LiteLLM)、local/ファイル.gguf
    instructions: Be brief and kind.
    tools: []                       # "module:function"、ファイルの全ツールなら "FILE.py"、calculator
    # approve: [send_mail]          # 実行の前に人に確認するツール
    # guardrails: {blocked_patterns: ['(?i)password\\s*[:=]'], tools: {send_mail: {max_calls: 1}}}
    # fallback: {max_retries: 2}     # ツールが失敗したら: もう一度試し、だめならツールなしで答える
    stops:                          # どの上限に達しても、それまでの結果は残る
      max_steps: 20
      deadline: 10m
      # cost: $1
    # settings: {temperature: 0}
    # memory: rules                 # ユーザーの発言を後の会話で参照する。model: モデルが記憶を書く
    # compact: 24000                # トークン数: これより長い会話は古い部分を要約する
    # project: true                 # このファイルの隣の AGENTS.md と skills/ をモデルに渡す

# models:                           # プロバイダーごとのキーとアドレス。${NAME} は環境変数
#   openai: {api_key: "${OPENAI_API_KEY}", base_url: "${OPENAI_BASE_URL:-https://api.openai.com/v1}"}

# mcp_servers:                      # すべてのエージェントで使うツールサーバー
#   files: {command: npx, args: ["-y", "@modelcontextprotocol/server-filesystem", "."]}
#   web: {url: "http://127.0.0.1:8000/mcp"}

# journal: runs.db                  # 実行の記録先。既定はこのファイルの隣の .kaname/ の中
# keep: 90d                         # 終了した実行をこの期間の後に削除する (既定: 削除しない)
# trace: {console: info, file: logs/trace.jsonl}     # 実行の経過を出力する。otel: http://localhost:4318
# serve: {port: 8000}              # `kaname serve` の設定
# workflows: [order.yaml]          # 一緒に公開するワークフローファイル: `kaname workflow check order.yaml`
"""


def main(args: argparse.Namespace) -> int:
    screen, path = Screen(), Path("kaname.yaml")
    if path.exists() and not args.force:
        screen.tell(
            "kaname.yaml already exists. Use --force to overwrite it",
            "kaname.yaml はすでにあります。上書きするには --force を指定してください",
            colour="red",
        )
        return FAILED
    path.write_text(say(TEMPLATE, _NIHONGO), encoding="utf-8")
    screen.tell(
        f'kaname.yaml was created. Edit it, then start with `{this_command()} run "…"`',
        f'kaname.yaml を作成しました。編集してから `{this_command()} run "…"` を実行してください',
        colour="green",
    )
    return DONE
