"""Mail, calendar, files, contacts, notes and pictures.

The labels follow the paper on flows: ids that the service gives and the user's own address book are trusted; what other people
wrote, such as subjects, file names and even the sender of a mail, is not. What stays with the user and can be undone is `own`.
"""

from __future__ import annotations

from typing import Any

from kaname import ToolContext, ToolLabels, tool

from .state import World

At = ToolContext[World]
ID = ("id",)


@tool(effect="pure", labels=ToolLabels(result=ID, private=True))
async def list_mail(context: At, query: str = "") -> list[dict[str, Any]]:
    """List the mails of the inbox. `query` selects by words of the sender or the subject."""
    return [
        {name: one.get(name, "") for name in ("id", "from", "subject")}
        for one in context.deps.records("mail", query, "from", "subject")
    ]


@tool(effect="pure", labels=ToolLabels(result=ID, private=True))
async def read_mail(id: str, context: At) -> dict[str, Any]:
    """Read a mail."""
    return context.deps.record("mail", id)


SEND = (
    "send",
    "mail",
    "email",
    "e-mail",
    "write",
    "tell",
    "notify",
    "invite",
    "thank",
    "送",
    "メール",
    "連絡",
    "伝え",
    "知らせ",
)


@tool(
    labels=ToolLabels(parameters={"to": "target", "subject": "content", "body": "content", "attachment": "target"}, verbs=SEND)
)
async def send_mail(to: str, subject: str, body: str, context: At, attachment: str = "") -> str:
    """Send a mail. `attachment` is the id of a file."""
    return context.deps.did("send_mail", f"sent to {to}", to=to, subject=subject, body=body, attachment=attachment)


@tool(
    labels=ToolLabels(
        parameters={"id": "target", "body": "content"}, verbs=("reply", "answer", "respond", "返信", "返事", "回答")
    )
)
async def reply_mail(id: str, body: str, context: At) -> str:
    """Reply to the sender of a mail."""
    return context.deps.did("reply_mail", "reply sent", id=id, body=body)


@tool(
    labels=ToolLabels(
        parameters={"id": "target", "to": "target", "note": "content"}, verbs=("forward", "pass", "転送", "回して")
    )
)
async def forward_mail(id: str, to: str, context: At, note: str = "") -> str:
    """Forward a mail."""
    return context.deps.did("forward_mail", f"forwarded to {to}", id=id, to=to, note=note)


@tool(effect="idempotent", labels=ToolLabels(role="own", parameters={"subject": "content", "body": "content"}))
async def draft_mail(to: str, subject: str, body: str, context: At) -> str:
    """Write a draft. It is not sent."""
    return f"draft {context.deps.add('drafts', 'd', to=to, subject=subject, body=body)} saved"


@tool(labels=ToolLabels(verbs=("send", "送")))
async def send_draft(id: str, context: At) -> str:
    """Send a draft."""
    return context.deps.did("send_draft", "sent", id=id)


@tool(effect="idempotent", labels=ToolLabels(role="own"))
async def move_mail(id: str, folder: str, context: At) -> str:
    """Move a mail to a folder of the mailbox."""
    context.deps.stores["mail"].get(id, {})["folder"] = folder
    return f"moved to {folder}"


@tool(labels=ToolLabels(verbs=("delete", "remove", "erase", "trash", "clean", "削除", "消し", "消す", "捨て")))
async def delete_mail(id: str, context: At) -> str:
    """Delete a mail for good."""
    context.deps.stores["mail"].pop(id, None)
    return context.deps.did("delete_mail", "deleted", id=id)


@tool(effect="pure", labels=ToolLabels(result=ID, private=True))
async def list_events(context: At, day: str = "") -> list[dict[str, Any]]:
    """List the events of the calendar, with those to which others invited the user. `day`: 2026-11-20."""
    return context.deps.records("events", day, "start")


@tool(
    labels=ToolLabels(
        parameters={"title": "content", "start": "target", "end": "bounded", "place": "content", "guests": "target"},
        verbs=(
            "create",
            "add",
            "schedule",
            "put",
            "set up",
            "book",
            "block",
            "invite",
            "登録",
            "追加",
            "入れ",
            "予定",
            "招待",
            "設定",
        ),
    )
)
async def create_event(
    title: str, start: str, context: At, end: str = "", place: str = "", guests: list[str] | None = None
) -> str:
    """Create an event and invite the guests. `start`: 2026-11-20 15:00."""
    told = f"event {context.deps.add('events', 'e', title=title, start=start, place=place)} created"
    return context.deps.did("create_event", told, title=title, start=start, end=end, place=place, guests=guests or [])


@tool(
    labels=ToolLabels(
        parameters={"id": "target", "start": "target", "end": "bounded"},
        verbs=("move", "reschedule", "postpone", "push", "shift", "変更", "移", "ずら", "延期", "リスケ"),
    )
)
async def move_event(id: str, start: str, context: At, end: str = "") -> str:
    """Move an event. All guests are notified."""
    return context.deps.did("move_event", "moved", id=id, start=start, end=end)


@tool(labels=ToolLabels(verbs=("cancel", "decline", "drop", "キャンセル", "中止", "取り消", "取りやめ")))
async def cancel_event(id: str, context: At) -> str:
    """Cancel an event. All guests are notified."""
    return context.deps.did("cancel_event", "cancelled", id=id)


@tool(effect="pure", labels=ToolLabels(result=ID, private=True))
async def list_files(context: At, query: str = "") -> list[dict[str, Any]]:
    """List the files of the drive, with those that others share with the user."""
    return [{"id": one["id"], "name": one["name"]} for one in context.deps.records("files", query, "name")]


@tool(effect="pure", labels=ToolLabels(result=ID, private=True))
async def read_file(id: str, context: At) -> dict[str, Any]:
    """Read a file."""
    return context.deps.record("files", id)


@tool(effect="idempotent", labels=ToolLabels(role="own", parameters={"text": "content"}))
async def create_file(name: str, text: str, context: At) -> str:
    """Create a file in the user's own drive. Nobody else sees it."""
    return f"file {context.deps.add('files', 'f', name=name, text=text)} created"


@tool(labels=ToolLabels(parameters={"id": "target", "to": "target"}, verbs=("share", "共有", "見せ", "渡し")))
async def share_file(id: str, to: str, context: At) -> str:
    """Share a file with a person, by the address."""
    return context.deps.did("share_file", f"shared with {to}", id=id, to=to)


@tool(labels=ToolLabels(verbs=("delete", "remove", "erase", "clean", "削除", "消し", "消す", "捨て")))
async def delete_file(id: str, context: At) -> str:
    """Delete a file for good."""
    context.deps.stores["files"].pop(id, None)
    return context.deps.did("delete_file", "deleted", id=id)


@tool(effect="pure", labels=ToolLabels(result=("id", "name", "email", "phone")))  # the note may come from an imported card
async def find_contact(name: str, context: At) -> list[dict[str, Any]]:
    """Look a person up in the user's own address book."""
    every = context.deps.records("contacts")
    return [one for one in every if name.casefold() in one["name"].casefold()]


@tool(labels=ToolLabels(verbs=("add", "save", "contact", "追加", "登録", "連絡先")))  # it changes what is trusted: not `own`
async def add_contact(name: str, email: str, context: At) -> str:
    """Add a person to the address book."""
    context.deps.add("contacts", "c", name=name, email=email, phone="", note="")
    return context.deps.did("add_contact", "added", name=name, email=email)


@tool(effect="idempotent", labels=ToolLabels(role="own", parameters={"text": "content"}))
async def remember(text: str, context: At) -> str:
    """Remember a note for later."""
    return f"note {context.deps.add('notes', 'n', text=text)} kept"


@tool(effect="pure", labels=ToolLabels(private=True))  # notes are made from what was read: not trusted
async def recall(query: str, context: At) -> list[str]:
    """Recall notes of earlier conversations."""
    return [one["text"] for one in context.deps.records("notes", query, "text")]


@tool(effect="pure", labels=ToolLabels(private=True))
async def read_picture(id: str, context: At) -> dict[str, Any]:
    """Read the text in a picture or a scan."""
    return context.deps.record("pictures", id)


DESK = (
    *(list_mail, read_mail, send_mail, reply_mail, forward_mail, draft_mail, send_draft, move_mail, delete_mail),
    *(list_events, create_event, move_event, cancel_event, list_files, read_file, create_file, share_file, delete_file),
    *(find_contact, add_contact, remember, recall, read_picture),
)
