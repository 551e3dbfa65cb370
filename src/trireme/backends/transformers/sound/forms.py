"""Tasks that take sounds, or make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trireme.backends.transformers.common_forms import (
    AUDIO,
    FP32,
    FUNCTION,
    GENERATION,
    GENERATION_DELAY_US,
    INT32,
    LABELS,
    SAMPLING_RATE,
    STRING,
    TEXT_INPUT,
    TOP_LABELS,
)
from trireme.backends.transformers.forms import NUMBER, TEXT, WHOLE, Option, TaskForm, TensorForm

_STEREO = 2
_SOUND = TensorForm("audio", STRING)
_WAVEFORM = TensorForm("waveform", FP32, (-1,))
_RATE = TensorForm("sampling_rate", INT32)
_SPEAKING_OPTIONS = ("max_new_tokens", "do_sample", "temperature", "top_k", "top_p", "seed")
_TEXT_TO_AUDIO = TaskForm(
    inputs=(TEXT_INPUT, TensorForm("speaker_embeddings", FP32, (-1,), is_optional=True)),
    outputs=(_SOUND, _WAVEFORM, _RATE),
    runner="sound.text_to_audio:TextToAudio",
    options=(
        *(option for option in GENERATION if option.name in _SPEAKING_OPTIONS),
        Option("guidance_scale", NUMBER),
        Option("speaker_id", WHOLE),
        Option("voice_preset", TEXT),
        Option("audio_encoding", TEXT),
    ),
    batch_delay_us=GENERATION_DELAY_US,
)

SOUND_TASKS: Mapping[str, TaskForm] = {
    "automatic-speech-recognition": TaskForm(
        inputs=(AUDIO,),
        outputs=(TensorForm("text", STRING),),
        runner="sound.speech:SpeechRecognition",
        options=(
            SAMPLING_RATE,
            Option("language", TEXT),
            Option("speech_task", TEXT),
            Option("max_new_tokens", WHOLE),
        ),
        batch_delay_us=GENERATION_DELAY_US,
    ),
    "audio-classification": TaskForm(
        inputs=(AUDIO,),
        outputs=LABELS,
        runner="sound.speech:AudioClassification",
        options=(SAMPLING_RATE, TOP_LABELS, FUNCTION),
    ),
    "text-to-audio": _TEXT_TO_AUDIO,
    "text-to-speech": _TEXT_TO_AUDIO,
}


def sound_outputs(model_config: Mapping[str, Any]) -> tuple[TensorForm, ...]:
    """Of `text-to-audio`, by the model's config.json: the two channels of MusicGen in stereo are a dimension."""
    decoder = model_config.get("decoder")
    is_stereo = isinstance(decoder, Mapping) and decoder.get("audio_channels") == _STEREO
    return (_SOUND, replace(_WAVEFORM, dims=(_STEREO, -1)) if is_stereo else _WAVEFORM, _RATE)
