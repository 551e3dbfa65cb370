"""Pictures to tensors in real decoder processes: the arithmetic, what is refused, and what ends a process."""

from __future__ import annotations

import io
import os
import signal
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from trireme.config.picture_parameters import PictureConfig, picture_config
from trireme.core.errors import InvalidArgumentError, UnavailableError, UnsupportedMediaError
from trireme.server.pictures.decoder import MAX_WAITING_BYTES, PictureDecoder
from trireme.server.pictures.picture_input import PictureInput

Image = pytest.importorskip("PIL.Image")
PIXELS = np.random.default_rng(1).integers(0, 256, size=(40, 60, 3), dtype=np.uint8)
RGB = Image.Resampling.BILINEAR


@pytest.fixture(scope="module")
def decoder() -> Iterator[PictureDecoder]:
    made = PictureDecoder()
    yield made
    made.close()


def file_of(pixels: NDArray[Any], kind: str = "PNG", **options: Any) -> bytes:
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, kind, **options)
    return target.getvalue()


def config_of(dims: tuple[int, ...] = (3, 16, 24), datatype: str = "FP32", **parameters: str) -> PictureConfig:
    given = {"image_input": "data", **{f"image_{name}": value for name, value in parameters.items()}}
    found = picture_config("m", [("data", datatype, dims)], given, True)
    assert found is not None
    return found


def tensor(decoder: PictureDecoder, config: PictureConfig, *files: bytes) -> NDArray[Any]:
    return decoder.tensor(files, PictureInput(config, True)).to_numpy()


def test_pixels_are_resized_scaled_and_laid_out_as_declared(decoder: PictureDecoder) -> None:
    config = config_of(scale="1/255", mean="0.485,0.456,0.406", deviation="0.229,0.224,0.225")
    found = tensor(decoder, config, file_of(PIXELS), file_of(PIXELS[::-1]))
    assert (found.shape, found.dtype) == ((2, 3, 16, 24), np.float32)
    for item, pixels in zip(found, (PIXELS, PIXELS[::-1]), strict=True):
        resized = np.asarray(Image.fromarray(pixels).resize((24, 16), RGB)) / 255
        expected = (resized - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        np.testing.assert_allclose(item, expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-5)


def test_the_shorter_side_is_resized_and_the_middle_cut_out(decoder: PictureDecoder) -> None:
    found = tensor(decoder, config_of((20, 20, 3), "UINT8", resize="24", colors="BGR"), file_of(PIXELS))
    resized = np.asarray(Image.fromarray(PIXELS).resize((36, 24), RGB))
    np.testing.assert_array_equal(found[0], resized[2:22, 8:28, ::-1])


def test_a_padded_picture_keeps_its_form(decoder: PictureDecoder) -> None:
    found = tensor(decoder, config_of((30, 30, 3), "UINT8", pad="114", filter="nearest"), file_of(PIXELS))
    assert (found[0, :5] == 114).all()
    assert (found[0, 25:] == 114).all()
    resized = np.asarray(Image.fromarray(PIXELS).resize((30, 20), Image.Resampling.NEAREST))
    np.testing.assert_array_equal(found[0, 5:25], resized)


def test_gray_pictures_palettes_and_cameras_on_their_side_are_understood(decoder: PictureDecoder) -> None:
    gray = tensor(decoder, config_of((1, 40, 60), "UINT8"), file_of(PIXELS))
    np.testing.assert_array_equal(gray[0, 0], np.asarray(Image.fromarray(PIXELS).convert("L")))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    turned = tensor(decoder, config_of((60, 40, 3), "UINT8"), file_of(PIXELS, exif=exif))
    np.testing.assert_array_equal(turned[0], np.rot90(PIXELS, -1))
    for kind in ("JPEG", "WEBP", "GIF", "BMP"):
        found = tensor(decoder, config_of((3, 40, 60)), file_of(PIXELS, kind))
        with Image.open(io.BytesIO(file_of(PIXELS, kind))) as picture:
            np.testing.assert_array_equal(found[0].transpose(1, 2, 0), np.asarray(picture.convert("RGB")))


def bomb(width: int, height: int) -> bytes:
    """A small PNG that says it is large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(10_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_pictures_with_too_many_pixels_are_refused_before_they_are_decoded(decoder: PictureDecoder) -> None:
    with pytest.raises(InvalidArgumentError, match="60000x60000 pixels, which is more than the 64000000"):
        tensor(decoder, config_of(), bomb(60_000, 60_000))
    with pytest.raises(InvalidArgumentError, match="more than the 100 "):
        tensor(decoder, config_of(max_pixels="100"), file_of(PIXELS))


def test_pictures_that_would_have_too_many_pixels_are_refused_before_they_are_resized(decoder: PictureDecoder) -> None:
    long = file_of(np.zeros((4000, 1, 3), np.uint8))
    with pytest.raises(InvalidArgumentError, match="its 1x4000 pixels would be more than the 64000000 allowed"):
        tensor(decoder, config_of(resize="256"), long)
    assert tensor(decoder, config_of(resize="24", max_pixels="2400000"), long).shape[-3:] == (3, 16, 24)


def test_what_is_no_picture_and_what_is_cut_short_is_told_with_its_number(decoder: PictureDecoder) -> None:
    with pytest.raises(UnsupportedMediaError, match="known are JPEG, PNG, WEBP, GIF, BMP"):
        tensor(decoder, config_of(), b"%PDF-1.7")
    with pytest.raises(UnsupportedMediaError, match="no picture"):
        tensor(decoder, config_of(), file_of(PIXELS, "TIFF"))
    with pytest.raises(InvalidArgumentError, match="picture 2 of input 'data': the picture cannot be decoded"):
        tensor(decoder, config_of(), file_of(PIXELS), file_of(PIXELS)[:-4000])
    assert tensor(decoder, config_of(), file_of(PIXELS)).shape == (1, 3, 16, 24)


def test_a_decoder_that_ends_costs_one_picture(decoder: PictureDecoder) -> None:
    tensor(decoder, config_of(), file_of(PIXELS))
    (process,) = decoder._idle
    os.kill(process.pid, signal.SIGSTOP)
    quick = PictureDecoder(max_seconds=0.3)
    quick._idle, decoder._idle = decoder._idle, []
    with pytest.raises(InvalidArgumentError, match=r"it took longer than 0\.3 s"):
        tensor(quick, config_of(), file_of(PIXELS))
    assert process.exit_code is not None
    decoder._idle.append(process)  # one that is gone is not given anything
    assert tensor(decoder, config_of(), file_of(PIXELS)).shape == (1, 3, 16, 24)
    quick.close()


def test_what_waits_is_limited_and_one_alone_always_fits() -> None:
    waiting = PictureDecoder()
    waiting.reserve(MAX_WAITING_BYTES + 1)
    with pytest.raises(UnavailableError, match="too many pictures wait"):
        waiting.reserve(1)
    waiting.release(MAX_WAITING_BYTES + 1)
    waiting.reserve(1)


def test_a_model_without_a_batch_takes_one_picture(decoder: PictureDecoder) -> None:
    config = config_of()
    assert decoder.tensor([file_of(PIXELS)], PictureInput(config, False)).shape == (3, 16, 24)
    with pytest.raises(InvalidArgumentError, match="takes one picture"):
        decoder.tensor([file_of(PIXELS)] * 2, PictureInput(config, False))
    whole = replace(config, has_batch_dim=True)
    assert decoder.tensor([file_of(PIXELS)], PictureInput(whole, False)).shape == (1, 3, 16, 24)
