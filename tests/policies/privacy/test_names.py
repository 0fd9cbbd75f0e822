"""`find_names`: names of people in Japanese and in Latin letters."""

import json
import sys
from pathlib import Path
from subprocess import run
from threading import Thread

import pytest

from kaname import Agent, ConfigError, Privacy, find_names, load_config
from kaname.policies.content.privacy.kinds import built_in
from kaname.policies.content.privacy.scan import find
from tests.policies.privacy.test_privacy import Watched, agent_of

CORPUS = Path(__file__).parents[2] / "corpora" / "personal_data.jsonl"


def names_in(text):
    return [text[start:end] for start, end, _ in sorted(find_names(text))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("担当の佐藤健一様と田中さんに連絡してください。", ["佐藤健一", "田中"]),
        ("営業部 斎藤　浩二", ["斎藤　浩二"]),
        ("これからは小野寺 葵でお願いします。", ["小野寺 葵"]),
        ("宮崎さんは宮崎に住んでいます。", ["宮崎"]),
        ("千葉と福島では雨です。横浜銀行の口座です。", []),
        ("宿泊者 Takuya Hasegawa 様", ["Takuya Hasegawa"]),
        ("Please ask Chloe Whitlock or Dr. Declan C. Novak.", ["Chloe Whitlock", "Declan C. Novak"]),
        ("Dear Ms Delgado, Novak, Lucia has signed.", ["Delgado", "Novak, Lucia"]),
        ("María José Ortegal Ruiz and Bjørn-Åge Støvring", ["María José Ortegal Ruiz", "Bjørn-Åge Støvring"]),
        ("Beneficiary Priya Okafor, IBAN FR35 2106", ["Priya Okafor"]),
        ("Send the Server Logs to New York. My Number is not a name.", []),
        ("担当はヤマダ タロウです。フリガナ：サトウ　ケンイチ", ["ヤマダ タロウ", "サトウ　ケンイチ"]),
        ("スズキハナコ様とﾔﾏﾀﾞ ﾀﾛｳ様", ["スズキハナコ", "ﾔﾏﾀﾞ ﾀﾛｳ"]),
        ("ヤマダ ナオタロウから電話", ["ヤマダ ナオタロウ"]),
        ("予約者はジョン・スミスさんと、メアリー＝アン・ジョンソンです。", ["ジョン・スミス", "メアリー＝アン・ジョンソン"]),
        ("キムラシロウザエモンさんの荷物", ["キムラシロウザエモン"]),
        ("サーバー・ソフトウェア、トマト サラダ、メーカーさん、ベビーシッターさん、ユーザー様、コスト・パフォーマンス", []),
        ("斎藤 直太朗に連絡", ["斎藤 直太朗"]),
        (
            "please tell john smith and anne-marie o'brien, maría garcía knows",
            ["john smith", "anne-marie o'brien", "maría garcía"],
        ),
        ("the server will link the page, may read the will of grant, and can mark more", []),
        ("mail john.smith@example.com, see /home/john smith_old and user=john smith2", []),
    ],
)
def test_find_names(text, names):
    assert names_in(text) == names


def test_find_names_finds_8_of_10_and_9_of_10_finds_are_right_in_sentences_that_were_held_out():
    right = wrong = labelled = 0
    for line in CORPUS.read_text("utf-8").splitlines():
        one = json.loads(line)
        if one["id"] % 2 == 0:  # these were used to write the rules
            continue
        spans = [(span["start"], span["end"]) for span in one["spans"] if span["kind"] == "person"]
        found = [place for place in find(one["text"], built_in(), [find_names]) if place.kind == "person"]
        labelled += len(spans)
        right += sum(any(place.start <= start and end <= place.end for place in found) for start, end in spans)
        wrong += sum(not any(start < place.end and place.start < end for start, end in spans) for place in found)
    assert right / labelled >= 0.80
    assert right / (right + wrong) >= 0.90


def test_find_names_in_a_text_that_is_longer_than_the_dictionary_takes_at_once():
    filler = "これは長い文章です。" * 4_000 + "あ" * 30_000
    assert names_in(f"{filler}\n山田太郎です。{filler}\n鈴木花子です。") == ["山田太郎", "鈴木花子"]


def test_find_names_in_several_threads_at_once():
    text, found = "担当の佐藤健一様と田中さんです。" * 50, []
    threads = [Thread(target=lambda: found.append(names_in(text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["佐藤健一", "田中"] * 50] * 8


async def test_privacy_hides_names_from_the_model_and_shows_them_to_the_user():
    model = Watched("<PERSON_1>さんと <PERSON_2> に連絡しました。")
    result = await agent_of(model, detectors=[find_names]).run("山田太郎さんと John Smith に連絡して。")
    assert "<PERSON_1>さんと <PERSON_2> に連絡して。" in model.sent[0]
    assert result.output == "山田太郎さんと John Smith に連絡しました。"


async def test_find_names_from_a_file(tmp_path):
    (tmp_path / "s.json").write_text('["ok"]')
    text = "agents:\n  a:\n    model: scripted/s.json\n    privacy: {detectors: ['kaname:find_names']}\n"
    (tmp_path / "kaname.yaml").write_text(text)
    (privacy,) = [one for one in load_config(tmp_path / "kaname.yaml").parts()["policies"] if isinstance(one, Privacy)]
    model = Watched("ok")
    await Agent(model, policies=[privacy], journal="memory").run("山田太郎さんと John Smith に連絡して。")
    assert "<PERSON_1>さんと <PERSON_2> に連絡して。" in model.sent[0]


def test_find_names_without_its_packages_is_told_with_the_command_before_a_run(monkeypatch):
    monkeypatch.setattr("kaname.policies.content.privacy.names.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"not installed \(sudachipy, .*\[names\]"):
        Privacy(detectors=[find_names])


def test_find_names_loads_nothing_before_the_first_text():
    code = (
        "import sys; from kaname import Privacy, find_names; Privacy(detectors=[find_names]); find_names('no names');"
        "print(sorted({'sudachipy', 'faker'} & {*sys.modules}))"
    )
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
