"""Inputs for the packages: drawn pages, spoken sentences, tones and small files."""

from __future__ import annotations

import ctypes
import io
import json
import zipfile

import numpy as np
from PIL import Image, ImageDraw, ImageFont

RATE = 16_000
"""Samples a second of all sounds."""


# ---------------------------------------------------------------------- pictures


def page(lines: list[str], size: int = 32) -> Image.Image:
    """Return lines of text on white paper."""
    font = ImageFont.load_default(size)
    image = Image.new("RGB", (640, (len(lines) + 1) * size * 2), "white")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        draw.text((size, size + row * size * 2), line, "black", font=font)
    return image


def receipt() -> Image.Image:
    """Return what a till prints."""
    return page(["Corner Bakery", "2 Croissants   5.80", "1 Coffee   2.40", "Total   8.20 EUR"])


def captcha(text: str = "w7kx") -> bytes:
    """Return a few leaning characters behind lines, as a file."""
    generator = np.random.default_rng(3)
    image = Image.new("RGB", (160, 60), (240, 240, 230))
    for index, character in enumerate(text):
        tile = Image.new("RGBA", (44, 56))
        ImageDraw.Draw(tile).text((8, 4), character, (30, 40, 120), font=ImageFont.load_default(38))
        turned = tile.rotate(float(generator.uniform(-18, 18)))
        image.paste(turned, (4 + index * 38, 2), turned)
    draw = ImageDraw.Draw(image)
    for _ in range(2):
        ends = generator.integers(0, (160, 60), (2, 2))
        draw.line([tuple(map(int, end)) for end in ends], (120, 120, 120))
    return picture_file(image)


def picture_file(image: Image.Image) -> bytes:
    """Return a picture as a file."""
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def article() -> Image.Image:
    """Return a page with a title, two paragraphs, and a picture with its caption."""
    image = Image.new("RGB", (600, 800), "white")
    draw = ImageDraw.Draw(image)
    draw.text((110, 40), "On the Growth of Trees", "black", font=ImageFont.load_default(34))
    text = "The rings of a tree tell how much it grew in each of its years, and so how much it rained. "
    words = (text * 8).split()
    rows = [" ".join(words[i : i + 11]) for i in range(0, 121, 11)]
    font = ImageFont.load_default(17)
    for row, line in enumerate(rows):
        draw.text((50, 110 + 24 * row), line, "black", font=font)
    draw.rectangle((120, 410, 480, 600), fill=(190, 215, 240), outline="black")
    draw.ellipse((180, 440, 330, 580), fill=(60, 130, 60))
    draw.rectangle((245, 540, 265, 600), fill=(110, 70, 30))
    draw.text((190, 612), "Figure 1: a tree in a field", "black", font=ImageFont.load_default(15))
    for row, line in enumerate(rows[:5]):
        draw.text((50, 660 + 24 * row), line, "black", font=font)
    return image


# ---------------------------------------------------------------------- sounds


def tones(frequencies: list[float], seconds: float = 0.5) -> np.ndarray:
    """Return notes one after the other, each with a few overtones, fading in and out."""
    time = np.arange(int(seconds * RATE)) / RATE
    fade = np.minimum(1, np.minimum(time, seconds - time) / 0.02)
    notes = [fade * sum(np.sin(2 * np.pi * f * k * time) / k**1.5 for k in range(1, 6)) for f in frequencies]
    return (0.25 * np.concatenate(notes)).astype(np.float32)


def speech(text: str) -> np.ndarray:
    """Return a sentence, spoken by eSpeak NG, with half a second of silence around it."""
    import espeakng_loader

    engine = ctypes.CDLL(espeakng_loader.get_library_path())
    parts: list[np.ndarray] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

    @kind
    def keep(samples, count, _):
        if count:
            parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    synchronous, utf_8 = 2, 1
    rate = engine.espeak_Initialize(synchronous, 0, espeakng_loader.get_data_path().encode(), 0)
    engine.espeak_SetSynthCallback(keep)
    engine.espeak_SetVoiceByName(b"en-us")
    data = text.encode()
    engine.espeak_Synth(data, ctypes.c_size_t(len(data) + 1), 0, 1, 0, utf_8, None, None)
    spoken = np.concatenate(parts).astype(np.float32) / 32768
    at = np.arange(int(spoken.size * RATE / rate)) * rate / RATE
    silence = np.zeros(RATE // 2, np.float32)
    sentence = np.interp(at, np.arange(spoken.size), spoken)
    return np.concatenate([silence, sentence, silence], dtype=np.float32)


# ---------------------------------------------------------------------- files


def files() -> dict[str, bytes]:
    """Return small files of several kinds, by the kind that they are."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr(zipfile.ZipInfo("notes.txt"), "nothing much\n" * 40)
    rows = "\n".join(f"{i},{i * i},name {i}" for i in range(60))
    return {
        "python": b"import os\n\n\ndef main():\n    for name in os.listdir('.'):\n"
        b"        print(name)\n\n\nif __name__ == '__main__':\n    main()\n",
        "c": b"#include <stdio.h>\n\nint main(int argc, char **argv)\n{\n"
        b'    for (int i = 0; i < argc; i++)\n        printf("%s\\n", argv[i]);\n    return 0;\n}\n',
        "json": json.dumps({"name": "x", "sizes": [1, 2, 3], "nested": {"a": None}}, indent=2).encode(),
        "html": b"<!DOCTYPE html>\n<html><head><title>A page</title></head>\n<body><h1>A page</h1>"
        b"<p>With a paragraph.</p></body></html>\n",
        "shell": b'#!/bin/sh\nset -e\nfor f in *.txt; do\n    echo "$f"\n    wc -l < "$f"\ndone\n',
        "csv": f"number,square,name\n{rows}\n".encode(),
        "zip": archive.getvalue(),
        "png": picture_file(receipt()),
    }
