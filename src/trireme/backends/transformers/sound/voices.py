"""Who speaks, and the vocoder that makes sound of spectrograms."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers import hub_access
from trireme.backends.transformers import source as sources
from trireme.backends.transformers.items import Item
from trireme.backends.transformers.loading import Loaded

SPEAKER_FILE = "speaker_embeddings.npy"
VOCODER_FOLDER = "vocoder"
DEFAULT_VOCODER = "microsoft/speecht5_hifigan"
_SHOWN_VOICES = 5


class Speakers:
    """The voices of one model."""

    def __init__(self, loaded: Loaded, processor: Any) -> None:
        config = loaded.model.config
        self._torch = loaded.torch
        self._device = loaded.device
        self._dtype = loaded.model.dtype
        self._count = int(getattr(config, "num_speakers", None) or 1)
        self._size = getattr(config, "speaker_embedding_dim", None) if config.model_type == "speecht5" else None
        presets = getattr(processor, "speaker_embeddings", None) or {}
        self._presets = sorted(name for name in presets if name != "repo_or_path")
        self._default = _default_speaker(loaded)

    def arguments(self, item: Item) -> dict[str, Any]:
        """Of the model: whose voice it is to take; raises RequestError for one that there is not."""
        given = item.inputs.get("speaker_embeddings")
        if self._size is None:
            if given is not None:
                raise RequestError("the model takes no 'speaker_embeddings'")
            return self._numbered(item.options.get("speaker_id"))
        vector = self._default if given is None else np.asarray(given, np.float32).ravel()
        if vector is None:
            raise RequestError(
                f"input 'speaker_embeddings' is missing: the model speaks with the voice of a vector of {self._size} "
                f"numbers; send one, or put a file '{SPEAKER_FILE}' with one beside the model's files"
            )
        if vector.size != self._size or not np.isfinite(vector).all():
            raise RequestError(f"'speaker_embeddings' must be {self._size} finite numbers, found {vector.size}")
        tensor = self._torch.from_numpy(vector.copy()).to(self._device, self._dtype)
        return {"speaker_embeddings": tensor[None]}

    def voice(self, item: Item) -> dict[str, Any]:
        """Of the processor: the name of a voice, never that of a file."""
        name = item.options.get("voice_preset")
        if name is None:
            return {}
        if name not in self._presets:
            known = ", ".join(self._presets[:_SHOWN_VOICES]) or "none"
            raise RequestError(
                f"the model has no 'voice_preset' of the name '{name}' (it has {len(self._presets)}: {known})"
            )
        return {"voice_preset": name}

    def _numbered(self, speaker: int | None) -> dict[str, Any]:
        if speaker is None:
            return {}
        if not 0 <= speaker < self._count or self._count == 1:
            raise RequestError(f"'speaker_id' is {speaker}, and the model has {self._count} speakers, from 0 on")
        return {"speaker_id": speaker}


def _default_speaker(loaded: Loaded) -> Any:
    """The vector beside the model's files; None where there is none."""
    path = sources.side_file(loaded.settings, loaded.source, SPEAKER_FILE)
    if path is None:
        return None
    try:
        return np.load(path, allow_pickle=False).astype(np.float32).ravel()
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"'{path}' of model '{loaded.settings.name}' cannot be read: {error}") from None


def load_vocoder(loaded: Loaded) -> Any:
    """For a model that gives spectrograms: out of the folder `vocoder` beside its files, or the one of the hub that
    such models are made with."""
    classes = loaded.transformers.AutoModelForTextToSpectrogram._model_mapping.values()
    if not any(isinstance(loaded.model, entry) for entry in classes):
        return None
    folder = os.path.join(loaded.source, VOCODER_FOLDER)
    source = folder
    if not os.path.isdir(folder):
        source = DEFAULT_VOCODER
        hub_access.why_not_asked()
    try:
        vocoder = loaded.transformers.SpeechT5HifiGan.from_pretrained(source)
    except Exception as error:
        raise ModelLoadError(
            f"model '{loaded.settings.name}' gives spectrograms, and the vocoder '{source}' that makes sound of them "
            f"could not be loaded: {str(error).strip().splitlines()[0]}; put a vocoder's files into '{folder}'"
        ) from error
    return vocoder.to(loaded.device, loaded.model.dtype).eval()
