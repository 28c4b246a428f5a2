"""Find speech in audio with Silero VAD, a network made elsewhere, imported from its ONNX file.

The file (https://github.com/snakers4/silero-vad, MIT) takes 576 samples at 16 kHz, of which the
first 64 are the last ones of the step before, and a state of 2 x 1 x 128 numbers; it answers with
the probability of speech. In the bundle the 64 samples are state too, so that a step takes the 512
new samples alone.

    pip install silero-vad
    python examples/silero_vad.py --out bundles/vad                  ten minutes of made-up speech
    python examples/silero_vad.py --out bundles/vad --audio a.wav    mono, 16 bits, 16 kHz
"""

from __future__ import annotations

import argparse
import importlib.metadata
import time
import wave
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.export.importing.imported_bundle import import_bundle
from edgefold.export.importing.onnx_interface import ImportConfig
from edgefold.runtime import Stream

RATE = 16_000
SAMPLES = 512
CONFIG = ImportConfig(
    state={"state": "stateN"},
    inputs={"input": (1, 64 + SAMPLES)},
    constants={"sr": RATE},
    overlap={"input": 64},
)
SPEECH, SILENCE = 0.5, 0.35  # a segment begins above the one and ends below the other
PAUSE_S, SHORTEST_S = 0.1, 0.25  # silence that ends a segment; shorter segments are left out

Audio = NDArray[np.float32]


def installed_model(name: str = "silero_vad_16k_op15.onnx") -> Path:
    """The file in the installed package `silero-vad`, which is not imported."""
    try:
        package = importlib.metadata.distribution("silero-vad")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(
            "silero-vad is not installed: pip install silero-vad, or give --model."
        ) from None
    return Path(str(package.locate_file(f"silero_vad/data/{name}")))


def probabilities(stream: Stream, audio: Audio) -> Iterator[float]:
    """The probability of speech in each 512 samples."""
    for start in range(0, len(audio) - SAMPLES + 1, SAMPLES):
        yield float(stream.step(audio[None, start : start + SAMPLES]).output.item())


def segments(found: Iterable[float]) -> Iterator[tuple[float, float]]:
    """Beginning and end of each stretch of speech, seconds."""
    begin = last = now = 0.0
    inside = False
    for probability in found:
        now += SAMPLES / RATE
        if probability >= SPEECH and not inside:
            inside, begin = True, now - SAMPLES / RATE
        if probability >= SILENCE:
            last = now
        elif inside and now - last >= PAUSE_S:
            inside = False
            if last - begin >= SHORTEST_S:
                yield begin, last
    if inside and last - begin >= SHORTEST_S:
        yield begin, last


def read_wav(path: Path) -> Audio:
    """Samples between -1 and 1."""
    with wave.open(str(path), "rb") as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise SystemExit(f"{path} is not mono, 16 bits, 16 kHz; convert it first.")
        frames = file.readframes(file.getnframes())
    return np.frombuffer(frames, "<i2").astype(np.float32) / np.float32(32768)


# Speech that is made up ---------------------------------------------------------------------------

VOWELS = np.array(  # frequencies of the first four formants, Hz; Peterson and Barney, 1952
    [
        *([730, 1090, 2440, 3500], [270, 2290, 3010, 3600], [300, 870, 2240, 3400]),
        *([530, 1840, 2480, 3500], [570, 840, 2410, 3400], [490, 1350, 1690, 3500]),
    ]
)
GAINS, WIDTHS = (1.0, 0.5, 0.25, 0.1), (80, 100, 140, 200)
HARMONICS = np.arange(1, 41)[:, None]


def made_up_speech(seconds: float, seed: int = 0) -> tuple[Audio, list[tuple[float, float]]]:
    """Phrases of voiced syllables and hissed consonants over faint noise, with pauses between.

    Returns:
        Samples, and beginning and end of each phrase in seconds.
    """
    random = np.random.default_rng(seed)
    audio = 0.002 * random.normal(size=int(seconds * RATE))
    phrases, at = [], RATE
    while at < len(audio) - 6 * RATE:
        begin, pitch, loud = at, random.choice([110, 125, 190, 210]), random.uniform(0.05, 0.2)
        for _ in range(random.integers(5, 14)):
            if random.random() < 0.5:
                n = int(random.uniform(0.05, 0.11) * RATE)
                audio[at : at + n] += 0.15 * loud * _consonant(random, n)
                at += n
            n = int(random.uniform(0.12, 0.28) * RATE)
            audio[at : at + n] += loud * _syllable(random, pitch * random.uniform(0.9, 1.15), n)
            at += n + (int(random.uniform(0.02, 0.06) * RATE) if random.random() < 0.3 else 0)
        phrases.append((begin / RATE, at / RATE))
        at += int(random.uniform(0.8, 3) * RATE)
    return audio.astype(np.float32), phrases


def _syllable(random: np.random.Generator, pitch: float, n: int) -> NDArray[Any]:
    """A voice that glides from one vowel to another: harmonics of its pitch, louder at formants."""
    waver = np.sin(2 * np.pi * 4.5 * np.arange(n) / RATE + random.uniform(0, 6))
    pitches = pitch * (1 + 0.05 * waver) * np.linspace(1.05, 0.92, n)
    glide = 1 / (1 + np.exp(-np.linspace(-6, 6, n)))
    first, second = VOWELS[random.integers(0, len(VOWELS), 2)]
    frequencies = HARMONICS * pitches  # (harmonics, n)
    loudness = np.zeros_like(frequencies)
    for a, b, gain, width in zip(first, second, GAINS, WIDTHS, strict=True):
        loudness += gain / (1 + ((frequencies - (a + (b - a) * glide)) / width) ** 2)
    loudness *= (frequencies < 0.47 * RATE) / HARMONICS**0.6
    phase = 2 * np.pi * np.cumsum(pitches) / RATE
    voice = (loudness * np.sin(HARMONICS * phase)).sum(0)
    rise, fall = (np.arange(n) / (s * RATE) for s in (0.03, 0.05))
    voice *= np.minimum(1, np.minimum(rise, fall[::-1]))
    return voice / np.abs(voice).max()  # type: ignore[no-any-return]


def _consonant(random: np.random.Generator, n: int) -> NDArray[Any]:
    hiss = np.diff(random.normal(size=n), n=2, prepend=[0, 0])  # mostly high frequencies
    return 0.2 * hiss * np.hanning(n)


# The whole ----------------------------------------------------------------------------------------


def main() -> None:
    """Import the file, run audio through the bundle, print where speech is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="default: the file of the installed package")
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundle")
    parser.add_argument("--audio", type=Path, help="a .wav file; default: made-up speech")
    parser.add_argument("--minutes", type=float, default=10.0, help="of made-up speech")
    args = parser.parse_args()
    if not args.out.exists():
        import_bundle(args.model or installed_model(), args.out, CONFIG)
    audio = read_wav(args.audio) if args.audio else made_up_speech(60 * args.minutes)[0]
    with Stream.open(args.out) as stream:
        begin = time.perf_counter()
        found = list(probabilities(stream, audio))
        taken = time.perf_counter() - begin
    n_segments = 0
    for first, last in segments(found):
        print(f"{first:8.2f} to {last:8.2f} s")
        n_segments += 1
    print(
        f"{n_segments} segments in {len(audio) / RATE:.0f} s of audio; "
        f"{1e6 * taken / len(found):.0f} µs for each {1e3 * SAMPLES / RATE:.0f} ms"
    )


if __name__ == "__main__":
    main()
