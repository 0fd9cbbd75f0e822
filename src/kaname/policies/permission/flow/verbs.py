"""The words with which people ask for a tool, as far as they follow from the tool's name."""

from __future__ import annotations

import re
from collections.abc import Iterable

_FAMILIES = tuple(  # words for one kind of action: the names of tools, and what people say, in English and Japanese
    [
        frozenset(line.split())
        for line in """
send sent email mail message 送 送信 送付 発送 メール
forward 転送
reply respond answer 返信 返事 答え
notify tell inform alert remind 知らせ 伝え 連絡 通知
call phone 電話
pay paid settle 支払 払
transfer wire 送金 振込 振り込
withdraw 引き出
buy bought purchase order checkout 購入 買 注文
sell sold 売
book reserve reservation booking 予約
cancel revoke 取り消 取消 キャンセル 解約
refund return 返金 返品
delete remove erase clear drop trash 削除 消 消去 除去 捨て
create make made add insert register new 作 作成 追加 登録 入れ
open 開 開設
write wrote save store record note put 書 書き込 記入 保存 記録 メモ
update change edit modify set correct 更新 変更 直 修正 編集 設定
move 移動 移し
rename 改名 名前を変え 名前を付け
copy duplicate コピー 複製
schedule plan arrange 予定 スケジュール 組
reschedule postpone 延期 日程変更 ずら
invite 招待 招
share grant 共有
post publish tweet submit upload 投稿 公開 提出 アップロード
comment コメント
subscribe 購読 申し込
run execute start launch deploy restart 実行 起動 開始 デプロイ
stop end close shut 停止 止め 終了 閉じ
approve accept confirm 承認 許可 受け入れ
reject decline 拒否 却下 断
merge マージ
assign 割り当 担当
download ダウンロード
print 印刷
""".strip().splitlines()
    ]
)
_ONLY_NAMES = frozenset(["sent", "paid", "bought", "sold", "made", "wrote", "new"])  # nobody asks with these
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_a-zA-Z]+")


def verbs_of(tool: str) -> tuple[str, ...]:
    """Return the words that name a tool: the actions in its name with what people say for them, else its first word."""
    pieces = [piece.lower() for piece in _PIECE.findall(tool)]
    actions = [piece for piece in pieces if any(piece in family for family in _FAMILIES)][:1] or pieces[:1]
    said = [word for piece in actions for family in _FAMILIES if piece in family for word in sorted(family - _ONLY_NAMES)]
    return tuple(dict.fromkeys([*actions, *said]))


def said_for(verbs: Iterable[str]) -> tuple[str, ...]:
    """Return declared verbs with the words that a single kanji among them stands for: 送 is also 送信."""
    longer = [
        word
        for verb in verbs
        if len(verb) == 1
        for family in _FAMILIES
        if verb in family
        for word in sorted(family)
        if verb in word
    ]
    return tuple(dict.fromkeys([*verbs, *longer]))
