"""Commands that protect stored data, and their options: `encrypt`, `user` and `approvals`."""

from __future__ import annotations

from .command import FLAG, Command
from .options import AN_AGENT, CONFIG, JOURNAL, OF_AGENT

# fmt: off
PROTECTION = (
    Command("encrypt", "Encrypt the journal, memories, index and cache, or change their key.",
            "ジャーナル、記憶、索引、キャッシュを暗号化します。またはキーを変更します。", (
        ("--key-file", {"metavar": "FILE"}, "The key file (default: encryption in the configuration, or $KANAME_KEY_FILE).",
         "キーのファイル (既定: 設定ファイルの encryption、または $KANAME_KEY_FILE)。"),
        ("--new-key", FLAG, "Create the key file first.", "先にキーのファイルを作成します。"),
        ("--rotate", {**FLAG, "group": "what"}, "Replace the key: encrypt everything with a new one.",
         "キーを交換します。すべてを新しいキーで暗号化し直します。"),
        ("--undo", {**FLAG, "group": "what"}, "Decrypt everything.", "すべての暗号化を解除します。"),
        ("-y --yes", FLAG, "undo: do not ask for confirmation.", "undo: 確認せずに解除します。"),
        CONFIG,
        AN_AGENT,
        JOURNAL,
    )),
    Command("user", "Export or erase everything that is stored about a user.",
            "ユーザーについて保存されたすべてのデータを書き出します。または消去します。", (
        ("action", {"choices": ["export", "erase"]}, "What to do.", "操作。"),
        ("user", {"metavar": "ID"}, "The id of the user, as passed to the runs.", "実行に渡したユーザーの ID。"),
        ("-o --out", {"metavar": "FILE"}, "export: the archive to write (default: user-DATE.zip in this folder).",
         "export: 書き出すアーカイブ (既定: このフォルダーの user-日付.zip)。"),
        ("-y --yes", FLAG, "erase: do not ask for confirmation.", "erase: 確認せずに消去します。"),
        ("--json", FLAG, "Print the result as JSON.", "結果を JSON で出力します。"),
        CONFIG,
        AN_AGENT,
        JOURNAL,
    )),
    Command("approvals", "List approvals that hold for later calls, or revoke them.",
            "以後の呼び出しにも有効な承認を一覧表示します。または取り消します。", (
        ("action", {"nargs": "?", "default": "list", "choices": ["list", "revoke"]}, "What to do (default: list).",
         "操作 (既定: list)。"),
        ("what", {"nargs": "*", "metavar": "ID"}, "revoke: the ids of the approvals.", "revoke: 承認の ID。"),
        ("--all", FLAG, "List expired and revoked ones, too.", "期限切れや取り消し済みのものも表示します。"),
        ("--json", FLAG, "Print JSON.", "JSON で出力します。"),
        *OF_AGENT,
    )),
)
# fmt: on
