"""300 tools of an office, and questions about them: what a search for tools is measured with.

Each of 30 things has the same ten tools, so that every question has nine near misses. Twenty things are described in English
and ten in Japanese. The questions are in the words of a user and not of the tools, and are searched for as they stand; a model
would write its own query, and has read the names of the tools.

`TUNED` was used to choose among about thirty ways of scoring, and the number of tools that a search returns: what it shows is
too good. `QUESTIONS` was written after that choice was made, and nothing was changed since: these are the figures to report.
"""

from __future__ import annotations

from typing import Any

ENGLISH = {  # the name: one of it, several, what it is
    "calendar_event": ("a calendar event", "calendar events", "appointments and meetings with date, time and participants"),
    "email": ("an email", "emails", "messages in the mailbox, with sender, subject and attachments"),
    "invoice": ("an invoice", "invoices", "bills that customers have to pay, with amount and due date"),
    "purchase_order": ("a purchase order", "purchase orders", "orders of goods from suppliers"),
    "expense_report": ("an expense report", "expense reports", "travel costs and receipts that employees claim back"),
    "contract": ("a contract", "contracts", "signed agreements with partners, with their term"),
    "employee": ("an employee record", "employee records", "people who work here, with department and manager"),
    "vacation": ("a vacation request", "vacation requests", "days off and leave of absence"),
    "support_ticket": ("a support ticket", "support tickets", "problems that customers report to the help desk"),
    "bug": ("a bug report", "bug reports", "defects of the software, with steps to reproduce"),
    "pull_request": ("a pull request", "pull requests", "proposed changes of source code, with reviews"),
    "deployment": ("a deployment", "deployments", "releases of software to production servers"),
    "shipment": ("a shipment", "shipments", "parcels on their way, with carrier and tracking number"),
    "warehouse_item": ("a warehouse item", "warehouse items", "stock on the shelves, with quantity and location"),
    "customer": ("a customer", "customers", "companies and people who buy from us, with address and phone number"),
    "campaign": ("a marketing campaign", "marketing campaigns", "newsletters and advertisements, with audience and budget"),
    "job_applicant": ("a job applicant", "job applicants", "candidates who apply for a position, with CV and interviews"),
    "meeting_room": ("a meeting room booking", "meeting room bookings", "rooms in the office that are reserved for some hours"),
    "server": ("a server", "servers", "machines in the data centre, with load and memory"),
    "document": ("a document", "documents", "text files, slides and spreadsheets in the shared drive"),
}
JAPANESE = {
    "subscription": ("サブスクリプション契約", "月額や年額の定期購入、プランと更新日"),
    "refund": ("返金", "お客様への払い戻しとその理由"),
    "training_course": ("研修", "社員向けの講座、受講者と日程"),
    "company_car": ("社用車の予約", "営業車の利用時間と運転者"),
    "survey": ("アンケート", "お客様や社員への質問と回答の集計"),
    "press_release": ("プレスリリース", "報道機関に向けた発表文と公開日"),
    "visitor": ("来客の受付", "訪問者の入館証と案内先"),
    "patent": ("特許", "発明の出願、審査の状況と期限"),
    "loan": ("備品の貸し出し", "パソコンや鍵など、貸した物と返却日"),
    "quality_check": ("品質検査", "製品の検査結果と不良の数"),
}
ACTIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "create": ("Create {one}.", "{one}を新しく登録します。", ("title", "details")),
    "get": ("Return the details of {one} by its id.", "{one}の詳細を番号で取得します。", ("id",)),
    "list": ("List {many} of a period, the newest first.", "期間を指定して{one}の一覧を表示します。", ("since", "until")),
    "update": ("Change fields of {one}.", "{one}の内容を変更します。", ("id", "changes")),
    "delete": ("Delete {one} for good.", "{one}を完全に削除します。", ("id",)),
    "approve": ("Approve or reject {one}.", "{one}を承認、または却下します。", ("id", "decision")),
    "assign": ("Assign {one} to a person who takes care of it.", "{one}の担当者を決めます。", ("id", "person")),
    "comment": ("Add a comment to {one}.", "{one}にコメントを追加します。", ("id", "text")),
    "export": ("Export {many} as a CSV file.", "{one}を CSV ファイルに書き出します。", ("since", "until")),
    "statistics": (
        "Return statistics on {many}: counts, sums and averages.",
        "{one}の件数や合計などを集計します。",
        ("since",),
    ),
}
TUNED = (  # what the user says, and the tool that is meant
    ("Put the dentist into my diary for Monday at nine", "calendar_event_create"),
    ("Which appointments do I have next week?", "calendar_event_list"),
    ("Move tomorrow's stand-up to 10:30", "calendar_event_update"),
    ("Throw away that message from the newsletter", "email_delete"),
    ("Write to Anna that the parcel has arrived", "email_create"),
    ("Bill Acme 400 dollars for last month's work", "invoice_create"),
    ("How much have we billed this year in total?", "invoice_statistics"),
    ("Order twenty office chairs from our supplier", "purchase_order_create"),
    ("Please sign off Ken's travel costs", "expense_report_approve"),
    ("I want my hotel receipts reimbursed", "expense_report_create"),
    ("When does the agreement with the landlord end? Its id is C-12", "contract_get"),
    ("Who is the manager of employee 118?", "employee_get"),
    ("I'd like to take the first week of August off", "vacation_create"),
    ("Say no to Bob's leave request", "vacation_approve"),
    ("Let Maria take care of the customer's complaint T-77", "support_ticket_assign"),
    ("Report that the login button crashes the app", "bug_create"),
    ("Give me a spreadsheet of all defects since March", "bug_export"),
    ("Leave a remark on the code change number 31", "pull_request_comment"),
    ("What was released to production yesterday?", "deployment_list"),
    ("Where is the parcel 5501 now?", "shipment_get"),
    ("How many boxes of screws are on the shelf, item 88?", "warehouse_item_get"),
    ("Acme has a new phone number, please store it", "customer_update"),
    ("Start a newsletter for our spring sale", "campaign_create"),
    ("Show me the candidates who applied this month", "job_applicant_list"),
    ("Reserve the big room on the second floor from two to four", "meeting_room_create"),
    ("How busy is machine web-3?", "server_get"),
    ("Pay the customer's money back for the broken lamp", "refund_create"),
    ("Reserve a company car for Thursday", "company_car_create"),
    ("Register the visitor who comes at three", "visitor_create"),
    ("How many products failed the inspection?", "quality_check_statistics"),
    ("来週の月曜 10 時に歯医者の予定を入れて", "calendar_event_create"),
    ("明日の会議を 15 時に変更してください", "calendar_event_update"),
    ("今月の予定を一覧で見せて", "calendar_event_list"),
    ("佐藤さんにお礼のメールを書いて", "email_create"),
    ("広告のメールを消しておいて", "email_delete"),
    ("アクメ社に 10 万円の請求書を作って", "invoice_create"),
    ("先月の請求書を CSV でください", "invoice_export"),
    ("取引先に椅子を 20 脚注文したい", "purchase_order_create"),
    ("田中さんの経費精算を承認して", "expense_report_approve"),
    ("契約書 C-12 の内容を教えて", "contract_get"),
    ("社員 118 番の所属部署は?", "employee_get"),
    ("8 月の最初の週に休暇を取りたい", "vacation_create"),
    ("お客様の問い合わせ T-77 を山田さんに担当させて", "support_ticket_assign"),
    ("アプリがログインで落ちる不具合を報告したい", "bug_create"),
    ("プルリクエスト 31 にコメントを書いて", "pull_request_comment"),
    ("荷物 5501 は今どこにありますか", "shipment_get"),
    ("倉庫の在庫の合計を集計して", "warehouse_item_statistics"),
    ("お客様の住所が変わったので直して", "customer_update"),
    ("今月の応募者の一覧", "job_applicant_list"),
    ("2 階の会議室を 14 時から予約して", "meeting_room_create"),
    ("壊れたランプの代金をお客様に払い戻して", "refund_create"),
    ("定期購入を解約して記録も消して", "subscription_delete"),
    ("新人向けの講座を 4 月に開きたい", "training_course_create"),
    ("木曜に営業車を使いたい", "company_car_create"),
    ("満足度調査の回答を集計して", "survey_statistics"),
    ("新製品の発表文を承認してもらえますか", "press_release_approve"),
    ("3 時に来る訪問者を登録して", "visitor_create"),
    ("特許 P-9 の審査の状況は?", "patent_get"),
    ("貸しているパソコンの一覧を見たい", "loan_list"),
    ("検査結果を CSV に書き出して", "quality_check_export"),
)

QUESTIONS = (
    ("Cancel my lunch with Peter on Friday, take it out of the calendar", "calendar_event_delete"),
    ("How many meetings did we hold in October?", "calendar_event_statistics"),
    ("Which mails came in today?", "email_list"),
    ("Open message number 4411 and tell me what it says", "email_get"),
    ("The due date on bill 20-118 is wrong, make it the 15th", "invoice_update"),
    ("Show me what customers were billed in spring", "invoice_list"),
    ("What have we ordered from suppliers since January?", "purchase_order_list"),
    ("May we buy the new printer? Please approve the order", "purchase_order_approve"),
    ("How high were our travel costs on average?", "expense_report_statistics"),
    ("Draw up an agreement with our new partner in Lyon", "contract_create"),
    ("Maria moved to the sales department, change her record", "employee_update"),
    ("A new colleague starts in June, add him to the staff", "employee_create"),
    ("Who is on leave in December?", "vacation_list"),
    ("A customer says that his delivery never came, open a case at the help desk", "support_ticket_create"),
    ("Note on ticket T-90 that the customer called again", "support_ticket_comment"),
    ("Give the crash in the login screen to Tom, he should fix it", "bug_assign"),
    ("Which code changes are waiting for a review?", "pull_request_list"),
    ("Accept the code change 52", "pull_request_approve"),
    ("Roll version 2.3 out to production", "deployment_create"),
    ("Send a parcel with the samples to Osaka", "shipment_create"),
    ("We counted again: only 14 pallets of paint are in stock", "warehouse_item_update"),
    ("I need a CSV file of everybody who buys from us", "customer_export"),
    ("How did our advertisements perform in numbers?", "campaign_statistics"),
    ("Turn down the candidate A-31", "job_applicant_approve"),
    ("We no longer need the conference room at four, drop the booking", "meeting_room_delete"),
    ("Find the details of the spreadsheet D-8 in the shared drive", "document_get"),
    ("List all the machines in the data centre", "server_list"),
    ("Ask our customers how satisfied they are with a questionnaire", "survey_create"),
    ("Who has borrowed a laptop at the moment?", "loan_list"),
    ("Apply for a patent on our new valve", "patent_create"),
    ("金曜日のピーターさんとの昼食の予定を取り消して", "calendar_event_delete"),
    ("今日届いたメールを見せてください", "email_list"),
    ("メール 4411 番を開いて内容を教えて", "email_get"),
    ("請求書 20-118 の支払期限を 15 日に直して", "invoice_update"),
    ("今年の請求額の合計はいくらですか", "invoice_statistics"),
    ("仕入れ先への発注の一覧を出して", "purchase_order_list"),
    ("出張費の領収書を精算したい", "expense_report_create"),
    ("リヨンの新しい取引先との契約書を作成して", "contract_create"),
    ("6 月に入社する新人を社員名簿に追加して", "employee_create"),
    ("12 月に休暇を取る人は誰ですか", "vacation_list"),
    ("鈴木さんの有給休暇の申請を却下して", "vacation_approve"),
    ("サポートのチケット T-90 に、お客様から再度電話があったと書いておいて", "support_ticket_comment"),
    ("ログイン画面のバグをトムさんに割り当てて", "bug_assign"),
    ("レビュー待ちのプルリクエストはどれですか", "pull_request_list"),
    ("バージョン 2.3 を本番環境にリリースして", "deployment_create"),
    ("大阪にサンプルの荷物を発送して", "shipment_create"),
    ("顧客リストを CSV で書き出して", "customer_export"),
    ("広告キャンペーンの効果を数字で知りたい", "campaign_statistics"),
    ("応募者 A-31 さんを不採用にして", "job_applicant_approve"),
    ("16 時の会議室の予約を取り消して", "meeting_room_delete"),
    ("データセンターのサーバーを全部一覧にして", "server_list"),
    ("共有ドライブの資料 D-8 の詳細を見たい", "document_get"),
    ("返金の理由を訂正したい", "refund_update"),
    ("サブスクリプションのプランを変更して", "subscription_update"),
    ("研修の受講者を CSV にして", "training_course_export"),
    ("社用車の予約を高橋さんに担当してもらって", "company_car_assign"),
    ("お客様に満足度のアンケートを取りたい", "survey_create"),
    ("新しいバルブの特許を出願したい", "patent_create"),
    ("今週の来客の一覧を見せて", "visitor_list"),
    ("鍵の貸し出しの記録を削除して", "loan_delete"),
)


def many_tools(ran: list[tuple[str, dict[str, Any]]] | None = None) -> list[Any]:
    """Return the 300 tools. What is called is added to `ran`."""
    made = []
    for action, (english, japanese, names) in ACTIONS.items():
        for thing, (one, many, what) in ENGLISH.items():
            about = f"{english.format(one=one, many=many)} {many[0].upper()}{many[1:]} are {what}."
            made.append(_tool(f"{thing}_{action}", about, names, ran))
        for thing, (one, what) in JAPANESE.items():
            made.append(_tool(f"{thing}_{action}", f"{japanese.format(one=one)}{one}とは、{what}のことです。", names, ran))
    return made


def _tool(name: str, description: str, names: tuple[str, ...], ran: list[tuple[str, dict[str, Any]]] | None) -> Any:
    properties = {one: {"type": "string", "description": f"the {one} of the {name.rpartition('_')[0]}"} for one in names}

    async def run(**given: Any) -> str:
        if ran is not None:
            ran.append((name, given))
        return f"{name} done"

    return {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": properties, "required": list(names)},
        "execute": run,
    }
