"""The tasks that are served, by the names that the hub has for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.transformers.common_forms import MESSAGES, STRING, TEXT_INPUT
from trireme.backends.transformers.forms import TaskForm, TensorForm
from trireme.backends.transformers.image.forms import IMAGE_TASKS, feature_outputs
from trireme.backends.transformers.multimodal.forms import MULTIMODAL_TASKS
from trireme.backends.transformers.sound.forms import SOUND_TASKS, sound_outputs
from trireme.backends.transformers.text.forms import TEXT_TASKS
from trireme.core.close_names import closest
from trireme.huggingface.tasks import OTHER_TASK_NAMES

TASKS: Mapping[str, TaskForm] = {**TEXT_TASKS, **IMAGE_TASKS, **SOUND_TASKS, **MULTIMODAL_TASKS}
_OUTPUTS_OF_MODEL: Mapping[str, Callable[[Mapping[str, Any]], tuple[TensorForm, ...]]] = {
    "image-feature-extraction": feature_outputs,
    "text-to-audio": sound_outputs,
    "text-to-speech": sound_outputs,
}
"""Tasks whose outputs have as many dimensions as the model's config.json tells."""
_LANGUAGE_PAIR = re.compile(r"translation_\w+_to_\w+")


def canonical_task(name: str, model: str) -> str:
    """The name in `TASKS`; raises ModelLoadError for a task that is not served, with the nearest that is."""
    name = OTHER_TASK_NAMES.get(name, name)
    if _LANGUAGE_PAIR.fullmatch(name):
        return "translation"
    if name in TASKS:
        return name
    nearest = closest(name.lower().replace("_", "-"), [*TASKS, *OTHER_TASK_NAMES])
    hint = f"; did you mean '{nearest}'?" if nearest is not None else ""
    raise ModelLoadError(
        f"parameter 'task' of model '{model}' names '{name}', which is not served{hint} The tasks are: "
        f"{', '.join(sorted(TASKS))}"
    )


def form_of(task: str, read_config: Callable[[], Mapping[str, Any]]) -> TaskForm:
    """The task as one model does it."""
    outputs = _OUTPUTS_OF_MODEL.get(task)
    return TASKS[task] if outputs is None else replace(TASKS[task], outputs=outputs(read_config()))


def inputs_of(form: TaskForm, is_chat: bool) -> tuple[TensorForm, ...]:
    """The task's inputs; a chat takes `messages`, or a `text_input` that stands for a single message of the user."""
    if not is_chat:
        return form.all_inputs()
    optional = TensorForm(TEXT_INPUT.name, STRING, is_optional=True)
    return (MESSAGES, *(optional if entry is TEXT_INPUT else entry for entry in form.all_inputs()))
