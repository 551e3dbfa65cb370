"""The preprocessing of pictures as a configuration declares it."""

from __future__ import annotations

import pytest

from trireme.config.picture_parameters import PictureConfig, picture_config
from trireme.core.errors import InvalidArgumentError


def declared(dims: tuple[int, ...] = (3, 224, 224), has_batch: bool = True, **parameters: str) -> PictureConfig | None:
    given = {f"image_{name}": value for name, value in parameters.items()}
    return picture_config("m", [("data", "FP32", dims), ("text", "BYTES", (1,))], given, has_batch)


def test_nothing_is_declared_without_the_name_of_the_input() -> None:
    assert declared(resize="a model's own word", size="7") is None


def test_dims_tell_size_layout_and_colors() -> None:
    first = declared(input="data")
    assert first is not None
    assert (first.item_shape, first.is_channel_first, first.colors) == ((3, 224, 224), True, "rgb")
    assert (first.resize, first.scale, first.mean, first.deviation) == (None, 1.0, (0.0,) * 3, (1.0,) * 3)
    assert first.item_size_bytes == 3 * 224 * 224 * 4
    last = declared((28, 20, 1), input="data")
    assert last is not None
    assert (last.item_shape, last.colors) == ((28, 20, 1), "gray")


def test_open_dims_are_filled_by_the_parameters() -> None:
    found = declared((-1, -1, -1), input="data", layout="NHWC", resize="32x48", colors="BGR")
    assert found is not None
    assert (found.item_shape, found.colors) == ((32, 48, 3), "bgr")
    whole = declared((-1, 3, 8, 8), has_batch=False, input="data", scale="1/255", mean="0.5", deviation="0.1,0.2,0.3")
    assert whole is not None
    assert (whole.has_batch_dim, whole.scale) == (True, 1 / 255)
    assert (whole.mean, whole.deviation) == ((0.5,) * 3, (0.1, 0.2, 0.3))


@pytest.mark.parametrize(
    ("dims", "parameters", "words"),
    [
        ((3, 8, 8), {"input": "date"}, "is no input; inputs are: data, text"),
        ((3, 8, 8), {"input": "text"}, "takes files as they are"),
        ((3, 8), {"input": "data"}, "a picture has 3"),
        ((3, 8, 3), {"input": "data"}, "NCHW or NHWC"),
        ((3, 8, 8), {"input": "data", "layout": "CWH"}, "must be one of nchw, chw"),
        ((3, 8, 8), {"input": "data", "colors": "gray"}, "has 3 channels"),
        ((3, -1, -1), {"input": "data"}, "needed as height x width"),
        ((3, 8, 8), {"input": "data", "resize": "4"}, "smaller than the 8x8"),
        ((3, 8, 9), {"input": "data", "resize": "9x8"}, "smaller than the 8x9"),
        ((3, 8, 8), {"input": "data", "resize": "8x8x8"}, "such as 256 or 224x224"),
        ((3, 8, 8), {"input": "data", "resize": "9", "pad": "0"}, "exclude each other"),
        ((3, 8, 8), {"input": "data", "mean": "1,2"}, "2 numbers for 3 channels"),
        ((3, 8, 8), {"input": "data", "deviation": "0"}, "must not be 0"),
        ((3, 8, 8), {"input": "data", "scale": "1/0"}, "a fraction such as 1/255"),
        ((3, 8, 8), {"input": "data", "scale": "nan"}, "must be a number"),
        ((3, 8, 8), {"input": "data", "mean": "1e999"}, "must be a number"),
        ((3, 8, 8), {"input": "data", "max_pixels": "inf"}, "must be a number"),
        ((3, 8, 8), {"input": "data", "max_pixels": "0"}, "must be 1 or more"),
        ((3, 8, 8), {"input": "data", "resize": "9" * 5000}, "such as 256 or 224x224"),
        ((3, 8, 8), {"input": "data", "std": "1"}, "is not known"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(
    dims: tuple[int, ...], parameters: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        declared(dims, **parameters)
    assert "of model 'm'" in caught.value.message
