"""`kaname encrypt`: encrypt the files of the project, change their key, or decrypt them."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...core.encryption.keys import KEY_FILE, MasterKey, create_key_file, key_for, use_key
from ...core.errors import ConfigError
from ...memory.protection.encrypting import decrypt_files, encrypt_files, rotate_key
from ...stores.default import refuse_to_encrypt
from ..main import DONE, FAILED
from ..messages import many, say
from ..terminal.questions import confirm
from ..terminal.screen import Screen
from .places import config_folder, key_file_of, places_for


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    if given.key_file:
        use_key(given.key_file)
    if given.new_key:
        _create_key(given, screen)
    places = places_for(given)
    refuse_to_encrypt(places.server)
    key = key_for(places.journal or config_folder(given))
    if key is None:
        raise ConfigError(
            say(
                f"no key is set. Add encryption: {{key_file: FILE}} to kaname.yaml, or set {KEY_FILE}, "
                "and run `kaname encrypt --new-key`",
                f"キーが設定されていません。kaname.yaml に encryption: {{key_file: FILE}} を書くか {KEY_FILE} を設定し、"
                "`kaname encrypt --new-key` を実行してください",
            )
        )
    if given.undo and not given.yes:
        asked = say(
            "decrypt all files? Everybody who can read them can then read their content",
            "すべてのファイルの暗号化を解除しますか?",
        )
        if not confirm(asked, screen):
            return FAILED
    work = decrypt_files if given.undo else rotate_key if given.rotate else encrypt_files
    count = 0
    for path in work(places, key):
        screen.say(str(path))
        count += 1
    _conclude(given, key, count, screen)
    return DONE


def _create_key(given: argparse.Namespace, screen: Screen) -> None:
    file = given.key_file or key_file_of(given)
    if not file:
        raise ConfigError(
            say("name the file for the new key: --key-file FILE", "新しいキーのファイルを指定してください: --key-file FILE")
        )
    create_key_file(Path(file))
    screen.note(
        say(
            f"created the key {file}. Store a copy in a safe place: without the key, nothing can be read any more",
            f"キー {file} を作成しました。安全な場所に控えを保管してください。キーがなければ何も読めなくなります",
        )
    )


def _conclude(given: argparse.Namespace, key: MasterKey, count: int, screen: Screen) -> None:
    if given.undo:
        told = say(f"decrypted {many(count, 'file')}", f"{count} 個のファイルの暗号化を解除しました")
    elif given.rotate:
        told = say(f"encrypted {many(count, 'file')} with the new key", f"{count} 個のファイルを新しいキーで暗号化しました")
    else:
        told = say(f"encrypted {many(count, 'file')}", f"{count} 個のファイルを暗号化しました")
    screen.note(f"{told} ({key.source})")
