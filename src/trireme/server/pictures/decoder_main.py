"""The program of a decoder process: reads a picture, answers with its tensor, and so on until its input ends."""

from __future__ import annotations

import io
import json
import resource
import sys
from typing import IO, Any

import numpy as np

from trireme.config.picture_parameters import PictureConfig
from trireme.server.pictures.message import ANSWER, DONE, INVALID, REQUEST, UNSUPPORTED, read_exactly
from trireme.server.pictures.preprocessing import tensor_of

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
MAX_MEMORY_BYTES = 3 << 30


def main() -> None:
    """Serves the pipes; ends with the server, which holds the other ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            settings_size, file_size = REQUEST.unpack(read_exactly(source, REQUEST.size))
            settings = json.loads(read_exactly(source, settings_size))
            content = read_exactly(source, file_size)
        except EOFError:
            return
        answer(target, *decoded(content, PictureConfig(**settings)))


def answer(target: IO[bytes], kind: int, data: bytes) -> None:
    """Writes one answer."""
    target.write(ANSWER.pack(kind, len(data)))
    target.write(data)
    target.flush()


def decoded(content: bytes, config: PictureConfig) -> tuple[int, bytes]:
    """The kind of the answer and its data."""
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # the model's own limit is held below, before anything is decoded
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > config.max_pixels:
                return INVALID, _text(
                    f"the picture has {width}x{height} pixels, which is more than the {config.max_pixels} allowed "
                    "(parameter 'image_max_pixels')"
                )
            return DONE, np.ascontiguousarray(tensor_of(picture, config)).tobytes()
    except UnidentifiedImageError:
        return UNSUPPORTED, _text(f"the file is no picture that is known; known are {', '.join(FORMATS)}")
    except MemoryError:
        return INVALID, _text("the picture takes too much memory to decode")
    except Exception as error:  # whatever a decoder makes of broken bytes
        return INVALID, _text(f"the picture cannot be decoded: {_reason(error)}")


def _reason(error: Exception) -> Any:
    return str(error) or type(error).__name__


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")


if __name__ == "__main__":
    main()
