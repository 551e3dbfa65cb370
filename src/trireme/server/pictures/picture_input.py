"""The input of a model that can be made of pictures."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.config.picture_parameters import PictureConfig


@dataclass(frozen=True, slots=True)
class PictureInput:
    """What a front end has to know of it."""

    config: PictureConfig
    has_batch: bool
    """Whether the input has one more dimension in front than the configuration says."""

    @property
    def name(self) -> str:
        return self.config.input_name

    @property
    def item_size_bytes(self) -> int:
        """Of the tensor of one picture."""
        return self.config.item_size_bytes
