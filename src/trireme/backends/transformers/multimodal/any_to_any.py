"""Texts, images and sounds to text, and to speech where the model speaks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.multimodal.image_text import Asked, ImageTextToText
from trireme.backends.transformers.sound.audio import audio_encoding, sound_outputs
from trireme.backends.transformers.text.generation import check_generation_options

_TEXT, _AUDIO = "text", "audio"
_SPEECH_RATE = 24000  # of all models that speak beside writing; no file of theirs says it
_SETTINGS = ("do_sample", "temperature", "top_k", "top_p")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An answer to be said."""

    item: Item
    inputs: Mapping[str, Any]


class AnyToAny(ImageTextToText):
    """A model of several senses."""

    def __init__(self, loaded: Loaded) -> None:
        thinker = getattr(loaded.model, "thinker", None)  # the part that writes, of a model that speaks too
        super().__init__(loaded if thinker is None else replace(loaded, model=thinker))
        self._torch = loaded.torch
        self._whole = loaded.model
        self._writes_by_part = thinker is not None
        found = getattr(loaded.model, "output_modalities", None) or (_TEXT,)
        self._modes = [mode for mode in (_TEXT, _AUDIO) if mode in found]
        self._maker = loaded.processor

    def prepare(self, item: Item) -> Any:
        """Takes `text_input`, `image`, `images` and `audio`, or in a chat `messages`."""
        mode = item.options.get("generation_mode", _TEXT)
        if mode == _TEXT:
            return super().prepare(item)
        if mode not in self._modes:
            raise RequestError(f"'generation_mode' must be {' or '.join(self._modes)} for this model, found '{mode}'")
        if item.emit is not None:
            raise RequestError("speech cannot be streamed: set 'stream' to false for the generation_mode audio")
        check_generation_options(item.options)
        audio_encoding(item.options)
        return _Prepared(item, self._processor.inputs(self._reader.read(item)))

    def key(self, prepared: Any) -> Hashable:
        """What is to be said runs alone."""
        return super().key(prepared) if isinstance(prepared, Asked) else id(prepared)

    def run(self, prepared: Sequence[Any]) -> list[Outputs]:
        """The text, or the same as it is said."""
        first = prepared[0]
        if isinstance(first, Asked):
            return super().run(prepared)
        options = first.item.options
        if "seed" in options:
            self._torch.manual_seed(options["seed"])
        ids, tensors = self._batches.parted(first.inputs)
        batch = self._batches.joined([ids], [tensors])
        return [self._spoken(first, batch)]

    def _spoken(self, prepared: _Prepared, batch: Mapping[str, Any]) -> Outputs:
        """The answer, and the same as it is said."""
        options = prepared.item.options
        settings = {name: options[name] for name in _SETTINGS if name in options}
        settings["max_new_tokens"] = self._generator.wanted_tokens(options)
        prefix = "thinker_" if self._writes_by_part else ""
        written = {f"{prefix}{name}": value for name, value in settings.items()}
        speaker = {"speaker": options["speaker"]} if "speaker" in options else {}
        try:
            ids, sound = self._whole.generate(**batch, **written, **speaker, generation_mode=_AUDIO)
        except ValueError as error:
            raise RequestError(f"the model does not speak: {error}") from error
        waveform = sound.float().cpu().numpy().squeeze().astype(np.float32)
        new = ids[0][batch["input_ids"].shape[1] :].tolist()
        text = self._maker.tokenizer.decode(new, skip_special_tokens=True)
        return {"text_output": text_array([text]), **sound_outputs(waveform, _SPEECH_RATE, audio_encoding(options))}
