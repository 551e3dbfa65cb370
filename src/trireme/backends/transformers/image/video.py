"""Videos to labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.image.image_model import ImageModel, PreparedImage
from trireme.backends.transformers.image.processors import load_beside
from trireme.backends.transformers.image.ranges import whole
from trireme.backends.transformers.image.video_reading import read_frames
from trireme.backends.transformers.items import Item, Outputs
from trireme.backends.transformers.labels import best_labels, check_label_options
from trireme.backends.transformers.loading import Loaded

_TOP_COUNT = 5
_MOST_FRAMES = 1024
_MOST_STEP = 100_000


class VideoClassification(ImageModel):
    """A model with a head for videos."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        # As the library's pipeline does: one made for videos where there is one, which needs torchvision.
        self._processor = load_beside(loaded, "AutoVideoProcessor", "AutoImageProcessor")
        self._is_of_videos = hasattr(self._processor, "sample_frames")
        config = loaded.model.config
        self._frame_count: int = getattr(config, "num_frames", 0) or getattr(config, "frames_per_clip", 1)

    def prepare(self, item: Item) -> PreparedImage:
        """Takes `video`: a file's bytes, the same in base64, several pictures, or an array of frames."""
        check_label_options(item.options)
        frames = read_frames(item.inputs.get("video"), self._choice(item))
        if self._is_of_videos:
            inputs = self._processor([np.stack(frames)], do_sample_frames=False, return_tensors="pt")
        else:
            inputs = self._processor(list(frames), return_tensors="pt")
        return PreparedImage(item, dict(inputs), frames[0].shape[:2])

    def run(self, prepared: Sequence[PreparedImage]) -> list[Outputs]:
        """The best labels of each video."""
        count = prepared[0].item.options.get("num_frames", self._frame_count)
        try:
            logits = self._forward(prepared).logits.float().cpu().numpy()
        except RuntimeError as error:
            if count == self._frame_count:
                raise
            raise RequestError(
                f"the model does not take this value of 'num_frames' ({count}), it is made for {self._frame_count}: "
                f"{error}"
            ) from error
        rows = zip(logits, prepared, strict=True)
        options = {"function_to_apply": "softmax"}
        return [
            best_labels(row, self._model.config, {**options, **entry.item.options}, _TOP_COUNT) for row, entry in rows
        ]

    def _choice(self, item: Item) -> Callable[[int], list[int]]:
        """Frames from the beginning, as many apart as asked; over all of the video where its processor does so."""
        count = whole(item.options, "num_frames", self._frame_count, 1, _MOST_FRAMES)
        step = whole(item.options, "frame_sampling_rate", 1, 1, _MOST_STEP)
        is_spread = self._is_of_videos and "frame_sampling_rate" not in item.options

        def choose(total: int) -> list[int]:
            needed = count if is_spread else count * step
            if total < needed:
                raise RequestError(
                    f"input 'video' has {total} frames, {needed} are needed: 'num_frames' is {count} and "
                    f"'frame_sampling_rate' {step}"
                )
            if is_spread:
                return [index * total // count for index in range(count)]
            return [int(index) for index in np.linspace(0, needed - 1, count, dtype=np.int64)]

        return choose
