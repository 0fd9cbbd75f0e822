"""Sentences that ask for a tool, and sentences that only look like it.

All sentences were committed before the rule was written, by the author of the rule. The rule was tuned on `READ_ONLY` and the
first two tables. Of the held-out tables only the number of right answers was looked at: 20 of 20 at the first count, and later.
"""

from __future__ import annotations

import pytest

from kaname.policies.permission.flow.verbs import verbs_of
from kaname.policies.permission.flow.words import UserWords

TOOLBOX = (
    """
send_mail forward_mail reply_to_mail notify_user call_contact pay_invoice transfer_money buy_item book_room
cancel_order refund_order delete_file create_event write_file update_file move_file rename_file copy_file schedule_meeting
reschedule_event invite_guest share_file post_message run_script stop_service approve_request reject_request assign_task
download_file print_document
""".strip()
    .replace("\n", " ")
    .split(" ")
)

READ_ONLY = """
消費税の資料を読んで
Did Bob delete /srv/a.md?
Is it clear what /srv/a.md holds?
Bob deleted /srv/a.md yesterday. Who restored it?
Which files did the cleanup job remove from /srv?
Summarise the order history of ACME.
Read the note about Friday's payment to Ann.
Who booked room 4 for Monday?
What does the book on my shelf list say about Oslo?
Show me the mail that Ann sent to bob@y.example.
How do I cancel order O-77?
Tell me when the call with Priya starts.
Is the change in /etc/app.conf still open?
送料はいくらか調べて
田中さんが送ったメールを読んで
誰がファイルを削除したか教えて
予約一覧を見せて
支払い期限はいつですか?
作業報告書の変更履歴を確認して
""".strip().splitlines()

TUNED_REQUESTS = [
    ("delete_file", "Please delete /srv/a.md."),
    ("send_mail", "Read the minutes, then send a summary to ann@x.example."),
    ("book_room", "Could you book room 4 for Monday at 10:00?"),
    ("cancel_order", "I'd like you to cancel order O-77."),
    ("pay_invoice", "If the invoice is right, pay 120 to GB11."),
    ("book_room", "明日の15時に会議室を予約してください。"),
    ("send_mail", "議事録を読んで、要点を鈴木さんに送って。"),
    ("pay_invoice", "請求書の3万円を払っておいてほしい。"),
    ("delete_file", "/srv/a.md の削除をお願いします。"),
    ("cancel_order", "注文O-77をキャンセルしたいです。"),
]
TUNED_NONE = """
Why was order O-77 cancelled?
The script deletes /srv/a.md every night; where is that configured?
I was sending it when the line broke. What did the log say?
List who can read, write and delete files in /srv.
Mail from Ann: what does she want?
消費電力のグラフを見せて。
昨日、佐藤さんがファイルを消しました。理由を調べて。
注文番号は何番ですか?
送信済みのメールに添付はありましたか?
会議室を予約した人の名前を教えて。
""".strip().splitlines()

HELD_OUT_REQUESTS = [
    ("forward_mail", "Can you forward the tickets to mika@x.example, please?"),
    ("buy_item", "Check the stock first and order two packs of B-305 afterwards."),
    ("move_file", "I need you to move /srv/a.md to /archive."),
    ("update_file", "Look up Priya's new number and update it in contacts.csv."),
    ("share_file", "Would you mind sharing budget.xlsx with tom@x.example?"),
    ("reply_to_mail", "田中さんのメールに「承知しました」と返信しといて。"),
    ("book_room", "部屋が空いていたら、金曜の10時で押さえて予約をお願い。"),
    ("print_document", "報告書を印刷してもらえますか?"),
    ("delete_file", "古い下書きを全部削除してから、報告書を鈴木さんと共有して。"),
    ("reschedule_event", "会議を来週に延期してくれる?"),
]
HELD_OUT_NONE = """
Has anybody approved the request of Bob?
What would happen if I removed /srv/b.md?
Find the message that says who should pay for the room.
Ann wants to reschedule; what times does she propose?
Compare the set menu with last year's booking.
買い物リストに何があるか教えて。
誰が会議室を予約して帰ったか調べて。
先週変更された設定を一覧にして。
田中さんは資料を共有してくれましたか?
登録済みの住所と電話番号を確認して。
""".strip().splitlines()


def asked_for(sentence: str) -> list[str]:
    """Return the tools of the toolbox that a sentence asks for."""
    words = UserWords([sentence], 0.0)
    return [tool for tool in TOOLBOX if words.call_for(verbs_of(tool))]


def test_sentences_are_nineteen_and_forty_half_of_them_requests() -> None:
    assert len(READ_ONLY) == 19
    assert [len(one) for one in (TUNED_REQUESTS, TUNED_NONE, HELD_OUT_REQUESTS, HELD_OUT_NONE)] == [10] * 4


@pytest.mark.parametrize("sentence", [*READ_ONLY, *TUNED_NONE, *HELD_OUT_NONE])
def test_question_report_homonym_or_compound_asks_for_no_tool(sentence: str) -> None:
    assert asked_for(sentence) == []


@pytest.mark.parametrize(("tool", "sentence"), [*TUNED_REQUESTS, *HELD_OUT_REQUESTS])
def test_request_asks_for_the_tool(tool: str, sentence: str) -> None:
    assert tool in asked_for(sentence)
