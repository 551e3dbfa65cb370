"""The parameters `image_...` of a model's configuration: how an input is made of a picture."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trireme.config.nearest import suggestion
from trireme.core.datatype import ITEM_SIZE
from trireme.core.errors import InvalidArgumentError

PREFIX = "image_"
INPUT = "image_input"
"""Names the input; without it nothing is declared, and a model may use the other names for itself."""
_NAMES = (
    INPUT,
    "image_layout",
    "image_colors",
    "image_resize",
    "image_pad",
    "image_filter",
    "image_scale",
    "image_mean",
    "image_deviation",
    "image_max_pixels",
)
_COLORS = {"rgb": 3, "bgr": 3, "gray": 1}
_FILTERS = ("nearest", "bilinear", "bicubic", "lanczos")
DEFAULT_MAX_PIXELS = 64_000_000
_SIZE = re.compile(r"\s*\d{1,5}\s*")

TensorForm = tuple[str, str, tuple[int, ...]]
"""Name, datatype and dims of an input."""


@dataclass(frozen=True, slots=True)
class PictureConfig:
    """From the pixels of a picture to one item of an input: resized, cropped or padded, `(pixel * scale - mean) /
    deviation`, in the layout of the input."""

    input_name: str
    datatype: str
    """Wire name."""
    height: int
    width: int
    colors: str
    """`rgb`, `bgr` or `gray`."""
    is_channel_first: bool
    has_batch_dim: bool
    """Whether the dims themselves begin with the number of pictures."""
    resize: tuple[int, ...] | None
    """Height and width, or the shorter side alone; None: the size of the tensor, whatever the picture's form is."""
    pad: float | None
    """The pixel value around a picture that keeps its form and fits inside; None: it does not."""
    filter: str
    scale: float
    mean: tuple[float, ...]
    """For each channel, in the order of the tensor's."""
    deviation: tuple[float, ...]
    max_pixels: int
    """Pictures with more are refused before they are decoded."""

    @property
    def channels(self) -> int:
        return _COLORS[self.colors]

    @property
    def item_shape(self) -> tuple[int, int, int]:
        """Of the tensor of one picture."""
        if self.is_channel_first:
            return (self.channels, self.height, self.width)
        return (self.height, self.width, self.channels)

    @property
    def item_size_bytes(self) -> int:
        return self.channels * self.height * self.width * ITEM_SIZE[self.datatype]


def picture_config(
    model: str, inputs: Sequence[TensorForm], parameters: Mapping[str, str], has_batch: bool
) -> PictureConfig | None:
    """None where nothing is declared; raises InvalidArgumentError for what makes no sense."""
    if INPUT not in parameters:
        return None
    read = _Reader(model, parameters)
    read.check_names()
    name = parameters[INPUT]
    datatype, dims = next(((kind, dims) for entry, kind, dims in inputs if entry == name), ("", ()))
    if not datatype:
        raise read.wrong(INPUT, f"is '{name}', which is no input; inputs are: {', '.join(form[0] for form in inputs)}")
    if datatype not in ITEM_SIZE or datatype in ("BOOL", "BF16"):
        raise read.wrong(INPUT, f"names '{name}', which is {datatype}; an input of strings takes files as they are")
    has_batch_dim = not has_batch and len(dims) == 4
    if len(dims) != 3 + has_batch_dim:
        raise read.wrong(INPUT, f"names '{name}' with dims {list(dims)}; a picture has 3: channels, height, width")
    return _of_dims(read, name, datatype, dims[-3:], has_batch_dim)


def _of_dims(read: _Reader, name: str, datatype: str, dims: tuple[int, ...], has_batch_dim: bool) -> PictureConfig:
    is_channel_first = _is_channel_first(read, dims)
    channels, *size = dims if is_channel_first else (dims[2], dims[0], dims[1])
    colors = read.choice("image_colors", tuple(_COLORS), "gray" if channels == 1 else "rgb")
    if channels not in (-1, _COLORS[colors]):
        raise read.wrong("image_colors", f"is {colors}, and input '{name}' has {channels} channels")
    resize = read.sizes("image_resize")
    if -1 in size:
        if resize is None or len(resize) != 2:
            raise read.wrong(
                "image_resize",
                f"is needed as height x width, such as 224x224, because '{name}' has the dims {list(dims)}",
            )
        size = [fixed if fixed > 0 else wanted for fixed, wanted in zip(size, resize, strict=True)]
    if resize is not None and any(have < want for have, want in zip(resize * (3 - len(resize)), size, strict=True)):
        raise read.wrong("image_resize", f"is smaller than the {size[0]}x{size[1]} that is cut out of it for '{name}'")
    pad = read.number("image_pad")
    if pad is not None and resize is not None:
        raise read.wrong("image_pad", "and 'image_resize' exclude each other: the padded picture has the tensor's size")
    return PictureConfig(
        input_name=name,
        datatype=datatype,
        height=size[0],
        width=size[1],
        colors=colors,
        is_channel_first=is_channel_first,
        has_batch_dim=has_batch_dim,
        resize=resize,
        pad=pad,
        filter=read.choice("image_filter", _FILTERS, "bilinear"),
        scale=read.number("image_scale", 1.0) or 0.0,
        mean=read.numbers("image_mean", _COLORS[colors], 0.0),
        deviation=read.deviations("image_deviation", _COLORS[colors]),
        max_pixels=read.count("image_max_pixels", DEFAULT_MAX_PIXELS),
    )


def _is_channel_first(read: _Reader, dims: tuple[int, ...]) -> bool:
    layout = read.choice("image_layout", ("nchw", "chw", "nhwc", "hwc"), "")
    if layout:
        return layout in ("nchw", "chw")
    first, last = dims[0] in (1, 3), dims[2] in (1, 3)
    if first == last:
        raise read.wrong("image_layout", f"is needed, NCHW or NHWC, because the dims {list(dims)} do not tell")
    return first


class _Reader:
    """The values of the parameters, with errors that name the model and the parameter."""

    def __init__(self, model: str, parameters: Mapping[str, str]) -> None:
        self._model = model
        self._parameters = parameters

    def wrong(self, name: str, what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"parameter '{name}' of model '{self._model}' {what}")

    def check_names(self) -> None:
        for name in self._parameters:
            if name.startswith(PREFIX) and name not in _NAMES:
                raise self.wrong(name, f"is not known{suggestion(name, _NAMES)}")

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = self._parameters.get(name, default).strip().lower()
        if text and text not in choices:
            raise self.wrong(name, f"must be one of {', '.join(choices)}, found '{text}'")
        return text

    def number(self, name: str, default: float | None = None) -> float | None:
        """A number, or a fraction such as 1/255."""
        text = self._parameters.get(name)
        return default if text is None else self._number(name, text)

    def count(self, name: str, default: int) -> int:
        value = self.number(name, default) or 0.0
        if value < 1:
            raise self.wrong(name, f"must be 1 or more, found '{self._parameters[name]}'")
        return int(value)

    def numbers(self, name: str, count: int, default: float) -> tuple[float, ...]:
        """One for each channel; one alone is for all of them."""
        text = self._parameters.get(name)
        if text is None:
            return (default,) * count
        values = tuple(self._number(name, part) for part in text.split(","))
        if len(values) == 1:
            return values * count
        if len(values) != count:
            raise self.wrong(name, f"has {len(values)} numbers for {count} channels")
        return values

    def deviations(self, name: str, count: int) -> tuple[float, ...]:
        values = self.numbers(name, count, 1.0)
        if 0.0 in values:
            raise self.wrong(name, "divides, and must not be 0")
        return values

    def sizes(self, name: str) -> tuple[int, ...] | None:
        """`256`, or `224x224`."""
        text = self._parameters.get(name)
        if text is None:
            return None
        parts = text.lower().split("x")
        if not all(_SIZE.fullmatch(part) and 0 < int(part) <= 16384 for part in parts) or len(parts) > 2:
            raise self.wrong(
                name, f"must be the shorter side, or height x width, such as 256 or 224x224; found '{text}'"
            )
        return tuple(int(part) for part in parts)

    def _number(self, name: str, text: str) -> float:
        above, slash, below = text.partition("/")
        try:
            value = float(above) / float(below) if slash else float(above)
        except (ValueError, ZeroDivisionError):
            value = math.nan
        if not math.isfinite(value):
            raise self.wrong(name, f"must be a number, or a fraction such as 1/255; found '{text}'")
        return value
