"""Real files for the tests, made on the spot: rendered text, video, and 200 files that are broken or hostile."""

import io
import random
import struct
import wave
import zipfile
import zlib

from kaname.senses import local


def picture(*lines, size=28, width=900, fmt="PNG", background="white", fill="black", noise=0, gap=60):
    """A picture with lines of text."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, 40 + gap * len(lines)), background)
    draw, font = ImageDraw.Draw(image), ImageFont.truetype(local.font(), size)
    for number, line in enumerate(lines):
        draw.text((20, 20 + gap * number), line, font=font, fill=fill)
    if noise:
        import numpy

        pixels = numpy.asarray(image).astype(int)
        pixels = pixels + numpy.random.default_rng(1).normal(0, noise, pixels.shape)
        image = Image.fromarray(pixels.clip(0, 255).astype("uint8"))
    out = io.BytesIO()
    image.save(out, fmt)
    return out.getvalue()


def vertical(*columns, size=32):
    """A picture with columns of Japanese, from right to left."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (60 * len(columns) + 60, 700), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.truetype(local.font(), size)
    for number, column in enumerate(columns):
        for place, char in enumerate(column):
            draw.text((60 * (len(columns) - number), 20 + size * 1.1 * place), char, font=font, fill="black")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def sound(seconds=1.0, hertz=440.0, rate=16_000):
    import math

    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        samples = [int(8000 * math.sin(2 * math.pi * hertz * n / rate)) for n in range(rate)]  # a second, over and over
        second = struct.pack(f"<{rate}h", *samples)
        file.writeframes((second * (int(seconds) + 1))[: 2 * int(seconds * rate)])
    return out.getvalue()


def video(scenes, *, speech=None, rate=10, size=(640, 360)):
    """A video: scenes are (seconds, text, colour); `speech` is a WAV file for its sound."""
    import av
    import numpy
    from PIL import Image, ImageDraw, ImageFont

    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.bit_rate = 2_000_000
        heard = container.add_stream("aac", rate=22_050) if speech else None
        for seconds, text, colour in scenes:
            image = Image.new("RGB", size, colour)
            ImageDraw.Draw(image).text((40, 140), text, font=ImageFont.truetype(local.font(), 40), fill="white")
            frame = av.VideoFrame.from_ndarray(numpy.asarray(image), format="rgb24")
            for _ in range(int(seconds * rate)):
                frame.pts = None
                container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if speech:
            with av.open(io.BytesIO(speech)) as given:
                resampler = av.AudioResampler(format="fltp", layout="mono", rate=22_050)
                for frame in given.decode(audio=0):
                    for part in resampler.resample(frame):
                        part.pts = None
                        container.mux(heard.encode(part))
            container.mux(heard.encode())
    return out.getvalue()


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, data=b"", extra=b""):
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + extra + _chunk(b"IDAT", zlib.compress(data, 1)) + _chunk(b"IEND", b"")


def hostile(count):
    """So many files as (name, media type, content): one of each kind of attack, and broken ones."""
    zeros = zlib.compress(bytes(90_000_000), 1)
    found = [
        ("bomb.png", "image/png", png(100_000, 100_000, bytes(50_000_000))),
        ("just-too-large.png", "image/png", png(20_000, 20_000, bytes(60_000_000))),
        ("lies.png", "image/png", png(8_000, 4_000, bytes(1000))),
        ("zero.png", "image/png", png(0, 0)),
        ("huge-text.png", "image/png", png(10, 10, bytes(310), _chunk(b"zTXt", b"a\0\0" + zeros))),
        ("huge-icc.png", "image/png", png(10, 10, bytes(310), _chunk(b"iCCP", b"a\0\0" + zeros))),
        ("many-chunks.png", "image/png", png(10, 10, bytes(310), _chunk(b"tEXt", b"a\0b") * 200_000)),
        (
            "bomb.gif",
            "image/gif",
            b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + b"\xf0\0\0" + bytes(6) + _gif_frame(65_535, 65_535),
        ),
        ("frames.gif", "image/gif", b"GIF89a\x0a\0\x0a\0\xf0\0\0" + bytes(6) + _gif_frame(10, 10) * 20_000 + b";"),
        (
            "bomb.bmp",
            "image/bmp",
            b"BM"
            + struct.pack("<IHHI", 60, 0, 0, 54)
            + struct.pack("<IiiHHIIiiII", 40, 99_999, 99_999, 1, 24, 0, 0, 0, 0, 0, 0),
        ),
        ("bomb.tiff", "image/tiff", _tiff(90_000, 90_000)),
        ("loop.tiff", "image/tiff", b"II*\0\x08\0\0\0\0\0\x08\0\0\0"),
        (
            "bomb.jpg",
            "image/jpeg",
            b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03\x01\x22\0\x02\x11\x01\x03\x11\x01" + bytes(2000),
        ),
        (
            "bomb.webp",
            "image/webp",
            b"RIFF" + struct.pack("<I", 40) + b"WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff" + bytes(20),
        ),
        ("script.svg", "image/svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'),
        ("entities.svg", "image/svg+xml", b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "aaaa">]><svg>&a;</svg>'),
        ("files.svg", "image/svg+xml", b'<svg><image href="file:///etc/passwd"/></svg>'),
        (
            "endless.wav",
            "audio/wav",
            b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0\x44\xac\0\0\x88\x58\1\0\2\0\x10\0data\xff\xff\xff\xff"
            + bytes(40_000_000),
        ),
        (
            "rate.wav",
            "audio/wav",
            b"RIFF\xff\xff\0\0WAVEfmt \x10\0\0\0\x01\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x10\0data\xff\xff\0\0"
            + bytes(60_000),
        ),
        ("playlist.mp4", "video/mp4", b"\0\0\0\x18ftypisom" + b"#EXTM3U\nhttp://127.0.0.1/\n" * 100),
        ("atoms.mp4", "video/mp4", b"\0\0\0\x18ftypisom\0\0\0\0isommp41" + b"\0\0\0\x08moov" * 100_000),
        (
            "deep.mp4",
            "video/mp4",
            b"\0\0\0\x18ftypisom\0\0\0\0isommp41"
            + b"".join(struct.pack(">I", 800_000 - 8 * n) + b"moov" for n in range(100_000)),
        ),
        ("size.mp4", "video/mp4", b"\0\0\0\x18ftypisom\0\0\0\0isommp41\0\0\0\x01mdat\xff\xff\xff\xff\xff\xff\xff\xff"),
        (
            "pages.pdf",
            "application/pdf",
            b"%PDF-1.7\n1 0 obj<</Type/Pages/Kids[1 0 R]/Count 99999999>>endobj\ntrailer<</Root 1 0 R>>",
        ),
        ("stream.pdf", "application/pdf", b"%PDF-1.7\n" + _pdf_bomb()),
        ("polyglot.gif", "image/gif", b"GIF89a/*" + bytes(20) + b"*/=1;alert(1)//"),
        ("polyglot.png", "image/png", png(10, 10, bytes(310)) + _archive()),
        ("program.png", "image/png", b"\x7fELF" + bytes(1000)),
        ("archive.jpg", "image/jpeg", _archive()),
        ("page.png", "image/png", b"<html><script>alert(1)</script></html>"),
        ("picture.mp3", "audio/mpeg", png(10, 10, bytes(310))),
        ("empty.png", "image/png", b""),
    ]
    generator = random.Random(7)
    whole = [
        ("p.png", "image/png", picture("Hello")),
        ("p.jpg", "image/jpeg", picture("Hello", fmt="JPEG")),
        ("p.webp", "image/webp", picture("Hello", fmt="WEBP")),
        ("p.gif", "image/gif", picture("Hello", fmt="GIF")),
        ("p.tiff", "image/tiff", picture("Hello", fmt="TIFF")),
        ("p.bmp", "image/bmp", picture("Hello", fmt="BMP")),
        ("s.wav", "audio/wav", sound(0.5)),
        ("v.mp4", "video/mp4", video([(0.5, "one", "navy"), (0.5, "two", "darkred")])),
    ]
    while len(found) < count:  # broken: cut off, or with bytes changed
        name, mime, content = whole[len(found) % len(whole)]
        broken = bytearray(content)
        if generator.random() < 0.3:
            broken = broken[: generator.randrange(12, len(broken))]
        for _ in range(generator.randrange(1, 40)):
            broken[generator.randrange(8, len(broken))] = generator.randrange(256)
        found.append((f"{len(found)}-{name}", mime, bytes(broken)))
    return found


def _gif_frame(width, height):
    return b"," + struct.pack("<HHHH", 0, 0, width, height) + b"\0\x02\x02\x4c\x01\0"


def _tiff(width, height):
    tags = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (273, 4, 1, 8),
        (277, 3, 1, 1),
        (278, 4, 1, height),
        (279, 4, 1, 10),
    ]
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)


def _archive():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.txt", bytes(1_000_000))
    return out.getvalue()


def _pdf_bomb():
    data = zlib.compress(zlib.compress(bytes(100_000_000), 1))
    return (
        b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        b"3 0 obj<</Type/Page/Parent 2 0 R/Contents 4 0 R>>endobj\n4 0 obj<</Filter[/FlateDecode/FlateDecode]/Length "
        + str(len(data)).encode()
        + b">>stream\n"
        + data
        + b"\nendstream endobj\ntrailer<</Root 1 0 R>>"
    )
