"""Texts to sound: speech, or music."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.items import Item, Outputs
from trireme.backends.transformers.loading import Loaded
from trireme.backends.transformers.sound.audio import Samples, audio_encoding, sound_outputs
from trireme.backends.transformers.sound.voices import Speakers, load_vocoder
from trireme.backends.transformers.text.generated_text import cancel_watch
from trireme.backends.transformers.text.generation import (
    DEFAULT_NEW_TOKENS,
    check_endless,
    check_generation_options,
)

_BY_TOKENIZER = {"musicgen", "speecht5"}  # whose processors are made for more than a text
_BY_PARTS = {"bark", "seamless_m4t", "seamless_m4t_v2"}  # whose parts have limits and settings of their own
_TOGETHER = {"musicgen"}  # of one length for all, whatever the texts: others hear the padding of their neighbours
_STARTS = {"csm": "[0]", "dia": "[S1] "}
"""The speaker that a text has to begin with."""
_ARGUMENTS = ("max_new_tokens", "do_sample", "temperature", "top_k", "top_p", "guidance_scale")


@dataclass(frozen=True, slots=True)
class _Spoken:
    item: Item
    text: str
    arguments: Mapping[str, Any]
    """Of generate, or of the forward pass."""
    voice: Mapping[str, Any]
    """Of the processor."""


class TextToAudio:
    """A model that gives samples, or one that gives spectrograms and a vocoder."""

    def __init__(self, loaded: Loaded) -> None:
        self._torch = loaded.torch
        self._transformers = loaded.transformers
        self._model = loaded.model
        self._device = loaded.device
        self._kind = str(loaded.model.config.model_type)
        self._processor = None if self._kind in _BY_TOKENIZER else _load_processor(loaded)
        self._tokenizer = loaded.tokenizer
        self._vocoder = load_vocoder(loaded)
        self._rate = self._sampling_rate()
        self._speakers = Speakers(loaded, self._processor)
        self._is_generating = bool(loaded.model.can_generate())
        self._has_options = self._is_generating and self._kind != "speecht5"
        accepted = inspect.signature(loaded.model.generate).parameters if self._is_generating else {}
        self._is_watched = "stopping_criteria" in accepted or self._kind == "bark"

    def prepare(self, item: Item) -> _Spoken:
        """Takes `text_input`, and for some models `speaker_embeddings`."""
        text = item.text("text_input")
        if not text.strip():
            raise RequestError("the text is empty: there is nothing to say")
        check_generation_options(item.options)
        check_endless(item.options.get("max_new_tokens", 1))
        audio_encoding(item.options)
        arguments = {name: item.options[name] for name in _ARGUMENTS if name in item.options}
        if arguments and not self._has_options:
            raise RequestError(f"the model does not take {' or '.join(arguments)}: it does not write token by token")
        start = _STARTS.get(self._kind)
        if start is not None and not text.startswith("["):
            text = start + text
        return _Spoken(item, text, arguments | self._speakers.arguments(item), self._speakers.voice(item))

    def key(self, prepared: _Spoken) -> Hashable:
        """Texts for music with equal settings; everything else alone, and so what has a seed."""
        if self._kind not in _TOGETHER or "seed" in prepared.item.options:
            return id(prepared)
        return tuple(sorted(prepared.arguments.items()))

    def run(self, prepared: Sequence[_Spoken]) -> list[Outputs]:
        """Samples between -1 and 1, how many of them are a second, and all of it as a WAV file."""
        if all(spoken.item.is_cancelled() for spoken in prepared):
            waveforms: list[Samples] = [np.zeros(0, np.float32)] * len(prepared)
        else:
            waveforms = self._waveforms(prepared)
        return [
            sound_outputs(waveform, self._rate, audio_encoding(spoken.item.options))
            for waveform, spoken in zip(waveforms, prepared, strict=True)
        ]

    def _waveforms(self, prepared: Sequence[_Spoken]) -> list[Samples]:
        first = prepared[0]
        if "seed" in first.item.options:
            self._torch.manual_seed(first.item.options["seed"])
        inputs = self._inputs(prepared)
        arguments = dict(first.arguments)
        if not self._is_generating:
            found = self._model(**inputs, **arguments)[0]
        else:
            found = self._model.generate(**inputs, **arguments, **self._generation(prepared))
        if self._vocoder is not None:
            found = self._vocoder(found)
        return self._parted(found, len(prepared))

    def _inputs(self, prepared: Sequence[_Spoken]) -> dict[str, Any]:
        texts = [spoken.text for spoken in prepared]
        options: dict[str, Any] = {"return_tensors": "pt", **prepared[0].voice}
        if len(texts) > 1:
            options["padding"] = True
        if self._kind == "bark":
            options |= {"max_length": self._bark_length(), "add_special_tokens": False}
            options |= {"return_attention_mask": True, "return_token_type_ids": False}
        elif self._kind == "csm":
            options["add_special_tokens"] = True
        found = (self._processor or self._tokenizer)(texts, **options)
        return {name: self._placed(value) for name, value in found.items()}

    def _placed(self, value: Any) -> Any:
        if not self._torch.is_tensor(value):  # a voice is several tensors
            return value.to(self._device) if hasattr(value, "to") else value
        value = value.to(self._device)
        return value.to(self._model.dtype) if value.is_floating_point() else value

    def _bark_length(self) -> int:
        config = getattr(self._model.generation_config, "semantic_config", None)
        settings = config if isinstance(config, Mapping) else vars(config) if config is not None else {}
        return int(settings.get("max_input_semantic_length", DEFAULT_NEW_TOKENS))

    def _generation(self, prepared: Sequence[_Spoken]) -> dict[str, Any]:
        """What is the same for every request."""
        given: dict[str, Any] = {}
        if self._is_watched:
            watch = cancel_watch(self._torch, [spoken.item.is_cancelled for spoken in prepared])
            given["stopping_criteria"] = self._transformers.StoppingCriteriaList([watch])
        if self._kind in _BY_PARTS or not self._has_options:
            return given
        given["return_dict_in_generate"] = True
        config = self._model.generation_config
        of_library = self._transformers.GenerationConfig().max_length  # which is not the model's own
        is_limited = config.max_new_tokens or config.max_length not in (None, of_library)
        if "max_new_tokens" not in prepared[0].arguments and not is_limited:
            given["max_new_tokens"] = DEFAULT_NEW_TOKENS
        if self._kind == "csm":
            given["output_audio"] = True
        return given

    def _parted(self, found: Any, count: int) -> list[Samples]:
        """One sound for each text."""
        if isinstance(found, Mapping):
            name = next((name for name in ("audio", "waveform") if name in found), "sequences")
            is_coded = name == "sequences" and self._processor is not None
            found = self._processor.decode(found[name]) if is_coded and self._processor else found[name]
        elif isinstance(found, tuple):
            found = found[0]
        if not isinstance(found, list):
            found = list(found) if count > 1 else [found]
        return [sound.float().cpu().numpy().squeeze().astype(np.float32) for sound in found]

    def _sampling_rate(self) -> int:
        """As the files say it, in one of several places; raises ModelLoadError where none does."""
        if self._vocoder is not None:
            return int(self._vocoder.config.sampling_rate)
        config = self._model.config
        places = (getattr(self._model, "generation_config", None), config, getattr(config, "codec_config", None))
        for place in (*places, getattr(self._processor, "feature_extractor", None)):
            for name in ("sampling_rate", "sample_rate"):
                rate = getattr(place, name, None)
                if rate is not None:
                    return int(rate)
        raise ModelLoadError(f"the files of the model, a {self._kind}, do not say how many samples a second has")


def _load_processor(loaded: Loaded) -> Any:
    """None where the tokenizer is all that the model comes with."""
    try:
        return loaded.beside("AutoProcessor")
    except (OSError, ValueError):
        return None
