"""Tasks that take sounds."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.backends.transformers.common_forms import (
    AUDIO,
    FUNCTION,
    GENERATION_DELAY_US,
    LABELS,
    SAMPLING_RATE,
    STRING,
    TOP_LABELS,
)
from trireme.backends.transformers.forms import TEXT, WHOLE, Option, TaskForm, TensorForm

SOUND_TASKS: Mapping[str, TaskForm] = {
    "automatic-speech-recognition": TaskForm(
        inputs=(AUDIO,),
        outputs=(TensorForm("text", STRING),),
        runner="sound.speech:SpeechRecognition",
        auto_classes=("AutoModelForSpeechSeq2Seq", "AutoModelForCTC"),
        options=(
            SAMPLING_RATE,
            Option("language", TEXT),
            Option("speech_task", TEXT),
            Option("max_new_tokens", WHOLE),
        ),
        loads=("AutoFeatureExtractor", "AutoTokenizer"),
        batch_delay_us=GENERATION_DELAY_US,
    ),
    "audio-classification": TaskForm(
        inputs=(AUDIO,),
        outputs=LABELS,
        runner="sound.speech:AudioClassification",
        auto_classes=("AutoModelForAudioClassification",),
        options=(SAMPLING_RATE, TOP_LABELS, FUNCTION),
        loads=("AutoFeatureExtractor",),
    ),
}
