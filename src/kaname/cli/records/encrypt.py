"""`kaname encrypt`: encrypt the files of the project, change their key, or decrypt them."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...core.encryption.keys import KEY_FILE, MasterKey, create_key_file, key_for, use_key
from ...memory.protection.encrypting import decrypt_files, encrypt_files, rotate_key
from ...stores.default import refuse_to_encrypt
from ..main import DONE, FAILED
from ..messages import config_error, many, say
from ..terminal.questions import confirm
from ..terminal.screen import Screen
from .places import config_folder, key_file_of, places_for


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if args.key_file:
        use_key(args.key_file)
    if args.new_key:
        _create_key(args, screen)
    places = places_for(args)
    refuse_to_encrypt(places.server)
    key = key_for(places.journal or config_folder(args))
    if key is None:
        raise config_error(
            f"no key is set. Add encryption: {{key_file: FILE}} to kaname.yaml, or set {KEY_FILE}, "
            "and run `kaname encrypt --new-key`",
            f"キーが設定されていません。kaname.yaml に encryption: {{key_file: FILE}} を書くか {KEY_FILE} を設定し、"
            "`kaname encrypt --new-key` を実行してください",
        )
    if args.undo and not args.yes:
        asked = say(
            "decrypt all files? Everybody who can read them can then read their content",
            "すべてのファイルの暗号化を解除しますか?",
        )
        if not confirm(asked, screen):
            return FAILED
    work = decrypt_files if args.undo else rotate_key if args.rotate else encrypt_files
    count = 0
    for path in work(places, key):
        screen.say(str(path))
        count += 1
    _conclude(args, key, count, screen)
    return DONE


def _create_key(args: argparse.Namespace, screen: Screen) -> None:
    file = args.key_file or key_file_of(args)
    if not file:
        raise config_error(
            "name the file for the new key: --key-file FILE", "新しいキーのファイルを指定してください: --key-file FILE"
        )
    create_key_file(Path(file))
    screen.tell(
        f"created the key {file}. Store a copy in a safe place: without the key, nothing can be read any more",
        f"キー {file} を作成しました。安全な場所に控えを保管してください。キーがなければ何も読めなくなります",
    )


def _conclude(args: argparse.Namespace, key: MasterKey, count: int, screen: Screen) -> None:
    if args.undo:
        message = say(f"decrypted {many(count, 'file')}", f"{count} 個のファイルの暗号化を解除しました")
    elif args.rotate:
        message = say(f"encrypted {many(count, 'file')} with the new key", f"{count} 個のファイルを新しいキーで暗号化しました")
    else:
        message = say(f"encrypted {many(count, 'file')}", f"{count} 個のファイルを暗号化しました")
    screen.note(f"{message} ({key.source})")
