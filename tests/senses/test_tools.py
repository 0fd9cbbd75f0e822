"""The tools of the senses: which files an agent can open with them, and what it is told."""

import asyncio
from base64 import b64decode
from io import BytesIO

import pytest
import pytest_asyncio

from kaname import Agent, ConfigError, Media, ScriptedModel, call
from kaname.senses import local
from kaname.senses.process.client import SenseError, close_workers
from kaname.senses.senses import Senses
from kaname.senses.tools import NAMES, senses_tools
from kaname.tools.loading import all_tools
from tests.properties import nightly

from .files import picture, sound, vertical, video

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the processes, which take seconds to begin, are those of an event loop


@pytest_asyncio.fixture(loop_scope="module", scope="module", autouse=True)
async def _no_processes_left():
    yield
    await close_workers()


async def result_of(tools, *calls, given=()):
    agent = Agent(ScriptedModel([*calls, "done"]), tools, journal="memory")
    result = await agent.run(["go", *given])
    return list(result.state.results.values())


async def test_file_is_found_by_its_name_or_number_and_nothing_else_of_the_machine(tmp_path):
    (tmp_path / "secret.png").write_bytes(picture("secret"))
    bill = Media.of(picture("Total 7"), name="bill.png")
    calls = [
        call("read_text", file=one) for one in ("bill.png", "1", str(tmp_path / "secret.png"), "../x", "http://localhost/x")
    ]
    found = await result_of(senses_tools(), *calls, given=[bill])
    assert [one.output for one in found[:2]] == ["Total 7", "Total 7"]
    assert "there is no file" in found[2].error
    assert "1 bill.png" in found[2].error
    assert "there is no file" in found[3].error
    assert "web addresses are not allowed" in found[4].error


@pytest.mark.parametrize(
    ("mode", "fmt", "more"), [("L", "PNG", {}), *nightly(("RGB", "PNG", {}), ("RGBA", "WEBP", {"lossless": True}))]
)
async def test_picture_of_40_megapixels_is_scaled_down_and_changed_and_a_larger_one_is_refused(mode, fmt, more):
    from PIL import Image

    out = BytesIO()
    Image.new(mode, (8000, 5000)).save(out, fmt, **more)
    given = Media.of(out.getvalue(), name="a.png" if fmt == "PNG" else "a.webp")
    assert (await local.fit(given, 2_000, 3_700_000)).data
    turned = await Senses().edit(given, [{"do": "rotate", "degrees": 90}, {"do": "convert", "format": "png"}])
    assert (turned.details["width"], turned.details["height"]) == (5000, 8000)
    out = BytesIO()
    Image.new("1", (8000, 5001)).save(out, "PNG")
    with pytest.raises(SenseError, match="the limit is 40,000,000 in all"):
        await local.fit(Media.of(out.getvalue()), 2_000, 3_700_000)


@pytest.mark.parametrize("degrees", [90, *nightly(0, 180, 270)])
async def test_turned_picture_is_read_in_order_and_its_boxes_are_those_of_the_picture(degrees):
    from PIL import Image

    lines = ["Invoice 4711 of the Sakura Trading Co.", "合計金額は12,480円です", "Thank you for your order"]
    out, upright = BytesIO(), Image.open(BytesIO(picture(*lines)))
    upright.rotate(degrees, expand=True).save(out, "PNG")
    page = await local.read(Media.of(out.getvalue()))
    assert page.text.replace(" ", "").splitlines() == [one.replace(" ", "") for one in lines]
    assert page.turned == degrees
    assert page.sure == (degrees in (0, 180))  # Japanese on its side may be vertical
    (total,) = [one.box for one in page.lines if "円" in one.text]
    expected = {0: (20, 80), 90: (80, 540), 180: (540, 100), 270: (100, 20)}[degrees]
    assert abs(total[0] - expected[0]) < 60
    assert abs(total[1] - expected[1]) < 60


@pytest.mark.nightly
async def test_vertical_japanese_is_read_from_right_to_left_and_said_to_be_unsure():
    columns = ["吾輩は猫である名前はまだない", "どこで生れたか頓と見当がつかぬ", "何でも薄暗いじめじめした所で"]
    found = (await result_of(senses_tools(), call("read_text", file="1"), given=[Media.of(vertical(*columns), name="a.png")]))[
        0
    ]
    assert found.output == "\n".join(
        [*columns, "[The reader is not sure of this text: words may be wrong or in the wrong order.]"]
    )


async def test_folder_opens_its_own_files_only(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.png").write_bytes(picture("inside"))
    (tmp_path / "b.png").write_bytes(picture("outside"))
    (tmp_path / "docs" / "link.png").symlink_to(tmp_path / "b.png")
    calls = [call("read_text", file=one) for one in ("a.png", "../b.png", "link.png")]
    found = await result_of(senses_tools(folder=tmp_path / "docs"), *calls)
    assert found[0].output == "inside"
    assert "there is no file" in found[1].error
    assert "there is no file" in found[2].error


async def test_picture_that_a_tool_makes_is_a_file_of_the_conversation():
    steps = [{"do": "crop", "box": [0, 0, 450, 100]}, {"do": "rotate", "degrees": 0}, {"do": "grayscale"}]
    calls = [
        call("edit_picture", file="1", steps=steps),
        call("read_text", file="2"),
        call("draw_chart", kind="bar", series={"売上": [1, 2]}, labels=["一月", "二月"], title="月別"),
        call("read_text", file="bar.png"),
        call("edit_picture", file="1", steps=[{"do": "crop", "box": [0, 0, 99999, 9]}]),
    ]
    found = await result_of(senses_tools(), *calls, given=[Media.of(picture("left half", width=900), name="a.png")])
    assert found[1].output == "left half"
    assert "月別" in found[3].output
    assert "is not inside the picture of 900 x 100 pixels" in found[4].error


async def test_scenes_of_a_video_are_found_where_they_change():
    film = video([(2.0, "one", "navy"), (3.0, "two", "darkred"), (2.0, "three", "darkgreen")], size=(320, 180))
    senses = Senses()
    scenes = await senses.scenes(film)
    assert [round(one.start) for one in scenes] == [0, 2, 5]
    assert (await senses.read(scenes[1].picture)).text == "two"


@pytest.mark.nightly
async def test_summary_of_a_video_without_a_model_lists_what_is_written_in_it():
    found = await Senses().summarize(video([(1.0, "Quarterly report", "navy"), (1.0, "Thank you", "darkred")]))
    assert "Quarterly report" in found.text
    assert "Thank you" in found.text
    assert not found.sees


async def test_tools_are_named_in_the_file_or_the_terminal(tmp_path):
    assert {one.name for one in all_tools(["senses"], tmp_path)} == {*NAMES} - {"generate_picture"}
    assert [one.name for one in all_tools(["senses:read_text,speak"], tmp_path)] == ["read_text", "speak"]
    with pytest.raises(ConfigError, match=r"there is no tool 'read_txt'.*read_text"):
        all_tools(["senses:read_txt"], tmp_path)


async def test_sound_that_is_too_long_is_refused():
    with pytest.raises(Exception, match="it is longer than 2 seconds"):
        await Senses(longest=2.0).speakers(sound(5.0))


@pytest.mark.nightly
async def test_two_tasks_at_once_wait_for_each_other():
    senses = Senses()
    pages = await asyncio.gather(*[senses.read(picture(f"number {n}")) for n in range(3)])
    assert [one.text for one in pages] == ["number 0", "number 1", "number 2"]


@pytest.mark.nightly
async def test_diagram_shows_its_boxes():
    made = await Senses().diagram([["Start", "Check"], ["Check", "Done"]], title="Flow")
    text = (await Senses().read(b64decode(made.media.data))).text
    assert all(word in text for word in ("Start", "Check", "Done", "Flow"))
