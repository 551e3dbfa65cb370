"""Files as inputs, and outputs as files."""

from __future__ import annotations

import io
import json
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.core.tensor import Tensor
from trireme.tools.client.errors import InputError
from trireme.tools.client.messages import InferAnswer
from trireme.tools.client.model import ServedModel
from trireme.tools.infer.files import values_of_file
from trireme.tools.infer.png import PngError, decode_png, encode_png
from trireme.tools.infer.printing import AnswerPrinter
from trireme.tools.infer.writing import OutputFiles
from trireme.tools.perf.model import TensorSpec


def spec(datatype: str, *dims: int) -> TensorSpec:
    return TensorSpec("A", datatype, dims)


WIDE_SOUND = (
    b"RIFF" + struct.pack("<I", 46) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 40000, 5, 40)
    + b"data" + struct.pack("<I", 10) + bytes(10)
)  # fmt: skip
LARGE_GIF = b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b",\0\0\0\0" + b"\xff" * 4 + b"\0\2"


def write_sound(path: Path, samples: list[int], channels: int = 1, width: int = 2) -> None:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(8000)
        sound.writeframes(b"".join(sample.to_bytes(width, "little", signed=width > 1) for sample in samples))


def test_arrays_of_numpy(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(4))
    np.savez(tmp_path / "two.npz", A=np.ones(2), B=np.zeros(2))
    np.savez(tmp_path / "others.npz", C=np.ones(2), D=np.zeros(2))
    assert values_of_file(spec("FP32", 4), str(tmp_path / "a.npy")).tolist() == [0, 1, 2, 3]
    assert values_of_file(spec("FP32", 2), str(tmp_path / "two.npz")).tolist() == [1, 1]
    with pytest.raises(InputError, match="has no array 'A'; it has: C, D"):
        values_of_file(spec("FP32", 2), str(tmp_path / "others.npz"))


@pytest.mark.parametrize(
    ("name", "content", "datatype", "reason"),
    [
        ("a.npy", b"no array", "FP32", "is no file of numpy's"),
        ("a.npz", b"PK no zip", "FP32", "is no file of numpy's"),
        ("a.json", b"{", "FP32", "is no JSON"),
        ("a.json", b"[" * 100_000, "FP32", "is no JSON"),
        ("a.json", b"[" * 5_000 + b"]" * 5_000, "FP32", "is no JSON: it is nested too deeply"),
        ("a.wav", WIDE_SOUND, "FP32", "is no WAV file .*: it has samples of 40 bits"),
        ("a.png", LARGE_GIF, "UINT8", "is no picture that can be read"),
        ("a.txt", b"\xff\xfe", "INT32", "is no text in UTF-8"),
        ("a.wav", b"RIFF", "FP32", "is no WAV file"),
        ("a.bin", b"123", "FP32", "no whole number of FP32"),
        ("a.png", b"\x89PNG\r\n\x1a\n", "UINT8", "a.png"),
    ],
)
def test_unreadable_file_is_told(tmp_path: Path, name: str, content: bytes, datatype: str, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason):
        values_of_file(spec(datatype, 2, 2), str(tmp_path / name))


def test_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        values_of_file(spec("BYTES", 1), str(tmp_path / "none.txt"))
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        values_of_file(spec("BYTES", 1), str(tmp_path))


def test_texts_numbers_and_raw_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good morning\n")
    (tmp_path / "n.txt").write_text("1 2\n3,4\n")
    (tmp_path / "n.json").write_text("[[1, 2]]")
    (tmp_path / "n.raw").write_bytes(np.array([1.5, 2.5], "<f4").tobytes())
    (tmp_path / "half.raw").write_bytes(b"\xc0\x3f")
    assert values_of_file(spec("BYTES", 1), str(tmp_path / "a.txt")) == b"good morning"
    assert values_of_file(spec("INT32", 4), str(tmp_path / "n.txt")) == [1, 2, 3, 4]
    assert values_of_file(spec("INT32", 1, 2), str(tmp_path / "n.json")) == [[1, 2]]
    assert values_of_file(spec("FP32", 2), str(tmp_path / "n.raw")).tolist() == [1.5, 2.5]
    assert values_of_file(spec("BF16", 1), str(tmp_path / "half.raw")).tolist() == [1.5]


def test_sound_is_samples_or_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.wav"
    write_sound(path, [0, 16384, -32768, 0], channels=2)
    assert values_of_file(spec("FP32", -1), str(path)).tolist() == [0.25, -0.5]
    assert values_of_file(spec("INT16", -1), str(path)).tolist() == [8192, -16384]
    assert values_of_file(spec("BYTES", 1), str(path)) == path.read_bytes()
    assert len(values_of_file(spec("UINT8", -1), str(path))) == len(path.read_bytes())
    with pytest.raises(InputError, match="cannot be sent as INT8"):
        values_of_file(spec("INT8", -1), str(path))


@pytest.mark.parametrize(("width", "sample"), [(1, 192), (2, 1 << 14), (3, 1 << 22), (4, 1 << 30)])
def test_sound_of_every_width(tmp_path: Path, width: int, sample: int) -> None:
    write_sound(tmp_path / "s.wav", [sample], width=width)
    assert values_of_file(spec("FP32", -1), str(tmp_path / "s.wav")).tolist() == [0.5]


def test_picture_takes_the_layout_of_the_input(tmp_path: Path) -> None:
    pixels = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    path = tmp_path / "p.png"
    path.write_bytes(encode_png(pixels))
    name = str(path)
    assert (values_of_file(spec("UINT8", -1, -1, 3), name) == pixels).all()
    assert (values_of_file(spec("UINT8", 3, -1, -1), name) == pixels.transpose(2, 0, 1)).all()
    assert values_of_file(spec("UINT8", 1, 3, -1, -1), name).shape == (1, 3, 2, 5)
    assert values_of_file(spec("UINT8", 4, 2, 5), name)[3].tolist() == [[255] * 5] * 2
    assert values_of_file(spec("UINT8", 2, 5), name).shape == (2, 5)
    assert values_of_file(spec("FP32", -1, -1, 3), name).max() == pytest.approx(29 / 255)
    assert values_of_file(spec("BYTES", 1), name) == path.read_bytes()
    with pytest.raises(InputError, match=r"5 x 2 pixels, and input 'A' takes \[224, 224, 3\]"):
        values_of_file(spec("FP32", 224, 224, 3), name)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_comes_back_as_it_was_written(channels: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (7, 9, channels), np.uint8)
    assert (decode_png(encode_png(pixels)) == pixels).all()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16"])
def test_png_of_another_writer(tmp_path: Path, mode: str) -> None:
    images = pytest.importorskip("PIL.Image")
    grey = np.add.outer(np.arange(40), np.arange(33)).astype(np.uint8) * 3
    colours = np.stack([grey, grey.T.copy().reshape(40, 33), 255 - grey], axis=2)
    if mode == "I;16":
        image = images.fromarray(grey.astype(np.uint16) * 257)
        expected = grey[:, :, np.newaxis]
    else:
        image = images.fromarray(colours).convert(mode)
        expected = np.asarray(image.convert("RGB" if mode == "P" else "L" if mode == "1" else mode))
        expected = expected.reshape(40, 33, -1)
    image.save(tmp_path / "p.png", optimize=True)  # with every kind of filter
    assert (decode_png((tmp_path / "p.png").read_bytes()) == expected).all()


def test_damaged_png_is_told() -> None:
    whole = encode_png(np.zeros((9, 9), np.uint8))
    for content in (b"", b"GIF89a", whole[:30], whole[:45], whole.replace(b"IHDR", b"JHDR"), b"\x89PNG\r\n\x1a\n"):
        with pytest.raises(PngError):
            decode_png(content)


def files_of(folder: Path, *words: str, outputs: tuple[str, ...] = ("OUT",)) -> OutputFiles:
    specs = tuple(TensorSpec(name, "FP32", (-1,)) for name in outputs)
    model = ServedModel("m", "", ("1",), "", 0, (), specs)
    return OutputFiles(model, [word.replace("@", f"{folder}/") for word in words], 8000)


def answer_of(**arrays: Any) -> InferAnswer:
    return InferAnswer("m", "1", tuple(Tensor.from_numpy(name, np.array(value)) for name, value in arrays.items()))


def test_outputs_as_files_of_each_kind(tmp_path: Path) -> None:
    files = files_of(tmp_path, "@a.npy", "@a.json", "OUT=@o.json", "@a.txt", "@a.bin", "@a.npz")
    files.take(answer_of(OUT=np.array([1.5, 2], np.float32)))
    files.finish()
    assert np.load(tmp_path / "a.npy").tolist() == [1.5, 2]
    assert json.loads((tmp_path / "a.json").read_text())["outputs"][0]["data"] == [1.5, 2]
    assert json.loads((tmp_path / "o.json").read_text()) == [1.5, 2]
    assert (tmp_path / "a.txt").read_text() == "1.5\n2.0\n"
    assert np.fromfile(tmp_path / "a.bin", "<f4").tolist() == [1.5, 2]
    assert np.load(tmp_path / "a.npz")["OUT"].tolist() == [1.5, 2]
    assert files.written == {
        path: path.stat().st_size for path in sorted(tmp_path.iterdir(), key=str) if path.is_file()
    }


def test_json_is_json_whatever_the_numbers_are(tmp_path: Path) -> None:
    files = files_of(tmp_path, "@a.json", "OUT=@o.json")
    answer = answer_of(OUT=np.array([np.nan, -np.inf], np.float32))
    files.take(answer)
    files.finish()
    for path in (tmp_path / "a.json", tmp_path / "o.json"):
        assert '["NaN", "-Infinity"]' in path.read_text()
    AnswerPrinter(printed := io.StringIO(), is_json=True, is_stream=False).show(answer)
    assert '"data": ["NaN", "-Infinity"]' in printed.getvalue()


def test_stream_puts_texts_together_and_numbers_other_files(tmp_path: Path) -> None:
    files = files_of(tmp_path, "@a.txt", "@a.npy", "@a.json")
    for word in (b"We ", b"rowed"):
        files.take(answer_of(OUT=np.array([word], np.object_)))
    files.take(InferAnswer("m", "1", ()))
    files.finish()
    assert (tmp_path / "a.txt").read_text() == "We rowed"
    assert np.load(tmp_path / "a-2.npy").tolist() == ["rowed"]
    assert len(json.loads((tmp_path / "a.json").read_text())) == 2


def test_files_in_elements_pictures_and_sounds(tmp_path: Path) -> None:
    files = files_of(tmp_path, "FILE=@p.jpg", "PIXELS=@p.png", "SOUND=@s.wav", outputs=("FILE", "PIXELS", "SOUND"))
    pixels = np.linspace(0, 1, 12, dtype=np.float32).reshape(1, 3, 2, 2)
    files.take(
        answer_of(FILE=np.array([b"\xff\xd8"], np.object_), PIXELS=pixels, SOUND=np.array([0.5, -2], np.float32))
    )
    assert (tmp_path / "p.jpg").read_bytes() == b"\xff\xd8"
    assert decode_png((tmp_path / "p.png").read_bytes()).shape == (2, 2, 3)
    with wave.open(str(tmp_path / "s.wav")) as sound:
        assert (sound.getframerate(), sound.readframes(2)) == (8000, np.array([16384, -32768], "<i2").tobytes())


@pytest.mark.parametrize(
    ("word", "outputs", "reason"),
    [
        ("OTHER=@a.npy", ("OUT",), "no output 'OTHER'"),
        ("@a.npy", ("ONE", "TWO"), "say which output goes to"),
        ("@none/a.npy", ("OUT",), "there is no folder"),
    ],
)
def test_file_that_cannot_be_written_is_told_before_the_request(
    tmp_path: Path, word: str, outputs: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        files_of(tmp_path, word, outputs=outputs)


def test_array_that_is_no_picture_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no picture"):
        files_of(tmp_path, "@p.png").take(answer_of(OUT=np.arange(3)))
