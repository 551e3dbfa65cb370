"""Sound to text, and to labels."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.items import Item, Outputs, text_array
from trireme.backends.transformers.labels import best_labels, check_label_options
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.sound.audio import Samples, read_audio
from trireme.backends.transformers.text.generated_text import cancel_watch

_TOP_COUNT = 5
_ARGUMENTS = {"language": "language", "speech_task": "task", "max_new_tokens": "max_new_tokens"}
"""Options, and what `generate` calls them."""


@dataclass(frozen=True, slots=True)
class _Sound:
    item: Item
    samples: Samples
    arguments: Mapping[str, Any]
    """Of generate."""


class _SoundModel:
    """Reads sound at the model's rate, and makes features of it."""

    def __init__(self, loaded: Loaded) -> None:
        self._torch = loaded.torch
        self._transformers = loaded.transformers
        self._model = loaded.model
        self._tokenizer = loaded.tokenizer
        self._extractor = loaded.processor
        self._device = loaded.device
        self._rate = int(self._extractor.sampling_rate)
        self._window = getattr(self._extractor, "n_samples", None)  # features of a fixed length, as Whisper has them
        # A norm over all of the time hears the padding in spite of a mask.
        is_blind = getattr(loaded.model.config, "feat_extract_norm", None) != "group"
        self._has_mask = bool(getattr(self._extractor, "return_attention_mask", False)) and is_blind

    def _samples(self, item: Item) -> Samples:
        samples = read_audio(item.inputs.get("audio"), self._rate, item.options.get("sampling_rate"))
        if self._model.main_input_name == "input_values":
            counts = self._step_counts(self._torch.tensor([len(samples)]))
            if counts is not None and counts[0] < 1:
                raise _too_short(samples, self._rate)
        return samples

    def _step_counts(self, lengths: Any) -> list[int] | None:
        """How many steps the model takes through inputs of these lengths; None where nothing says so."""
        count_of = getattr(self._model, "_get_feat_extract_output_lengths", None)
        return None if count_of is None else [int(count) for count in count_of(lengths)]

    def _length_key(self, sound: _Sound) -> Hashable:
        """Without a mask the model would hear the padding, so only sounds of one length run together."""
        if self._window is not None:
            return len(sound.samples) if len(sound.samples) > self._window else 0
        return 0 if self._has_mask else len(sound.samples)

    def _features(self, sounds: Sequence[_Sound], **options: Any) -> dict[str, Any]:
        if self._window is None:
            options.setdefault("padding", True)
        samples = [sound.samples for sound in sounds]
        try:
            found = self._extractor(samples, sampling_rate=self._rate, return_tensors="pt", **options)
        except ValueError as error:  # less than it makes a single feature of
            raise _too_short(min(samples, key=len), self._rate) from error
        batch = {}
        for name, tensor in found.items():
            tensor = tensor.to(self._device)
            batch[name] = tensor.to(self._model.dtype) if tensor.is_floating_point() else tensor
        return batch


class SpeechRecognition(_SoundModel):
    """A model that writes what it hears, or one that spells it (CTC)."""

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self._is_writing = loaded.model.can_generate()

    def prepare(self, item: Item) -> _Sound:
        """Takes `audio`: a file's bytes, or an array of samples."""
        arguments = {argument: item.options[name] for name, argument in _ARGUMENTS.items() if name in item.options}
        if arguments.get("max_new_tokens", 1) < 1:
            raise RequestError(f"'max_new_tokens' must be at least 1, found {arguments['max_new_tokens']}")
        return _Sound(item, self._samples(item), arguments if self._is_writing else {})

    def key(self, prepared: _Sound) -> Hashable:
        """Sounds that can stand in one batch of features, with equal options."""
        return (self._length_key(prepared), tuple(sorted(prepared.arguments.items())))

    def run(self, prepared: Sequence[_Sound]) -> list[Outputs]:
        """The text of each sound."""
        texts = self._write(prepared) if self._is_writing else self._spell(prepared)
        return [{"text": text_array([text])} for text in texts]

    def _write(self, sounds: Sequence[_Sound]) -> list[str]:
        options: dict[str, Any] = {}
        arguments = dict(sounds[0].arguments)
        if self._window is not None and len(sounds[0].samples) > self._window:
            # Longer than a window: the model goes along it by the times that it writes.
            options = {"truncation": False, "padding": "longest", "return_attention_mask": True}
            arguments["return_timestamps"] = True
        watch = cancel_watch(self._torch, [sound.item.is_cancelled for sound in sounds])
        criteria = self._transformers.StoppingCriteriaList([watch])
        try:
            ids = self._model.generate(**self._features(sounds, **options), **arguments, stopping_criteria=criteria)
        except ValueError as error:
            given = " and ".join(f"'{name}'" for name in _ARGUMENTS if name in sounds[0].item.options)
            if not given:
                raise
            raise RequestError(f"the model does not take this value of {given}: {error}") from error
        return [str(text) for text in self._tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def _spell(self, sounds: Sequence[_Sound]) -> list[str]:
        features = self._features(sounds)
        letters = self._model(**features).logits.argmax(dim=-1).cpu()
        mask = features.get("attention_mask")  # without one, all are of one length
        counts = None if mask is None else self._step_counts(mask.sum(dim=-1))
        rows = letters if counts is None else [row[:count] for row, count in zip(letters, counts, strict=True)]
        return [str(self._tokenizer.decode(row)) for row in rows]


class AudioClassification(_SoundModel):
    """A model with a head for sounds."""

    def prepare(self, item: Item) -> _Sound:
        """Takes `audio`: a file's bytes, or an array of samples."""
        check_label_options(item.options)
        return _Sound(item, self._samples(item), {})

    def key(self, prepared: _Sound) -> Hashable:
        """Sounds that can stand in one batch of features."""
        return self._length_key(prepared)

    def run(self, prepared: Sequence[_Sound]) -> list[Outputs]:
        """The best labels of each sound."""
        logits = self._model(**self._features(prepared)).logits.float().cpu().numpy()
        return [
            best_labels(np.asarray(row), self._model.config, sound.item.options, _TOP_COUNT)
            for row, sound in zip(logits, prepared, strict=True)
        ]


def _too_short(samples: Samples, rate: int) -> RequestError:
    return RequestError(
        f"input 'audio' is too short for the model to hear anything: it has {len(samples)} samples at {rate} Hz"
    )
