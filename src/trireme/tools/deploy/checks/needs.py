"""What the task of a model will be loaded with, as far as that is checked before."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.huggingface.saved_classes import telling_names
from trireme.huggingface.tasks import BASE_MODEL, OTHER_TASK_NAMES, TASK_CLASSES, TaskClasses
from trireme.tools.deploy.checks.library import Library
from trireme.tools.deploy.hub.model_files import ModelFiles

_SENTENCE_FILE = "modules.json"
_FOUND_OUT_LATER = {
    "video-classification",
    "zero-shot-audio-classification",
    "document-question-answering",
    "image-text-to-text",
    "image-to-text",
    "visual-question-answering",
    "any-to-any",
    "text-to-audio",
    "text-to-speech",
}
NEEDS: Mapping[str, TaskClasses] = {
    task: classes for task, classes in TASK_CLASSES.items() if task not in _FOUND_OUT_LATER
}
"""By task, where it is checked before a model is loaded; the loading finds out about the others."""


def needs_of(model: ModelFiles, task: str | None, library: Library) -> list[TaskClasses]:
    """Those of the task that was named, or of all that the names in config.json may stand for; none where nobody
    can tell, as for a model without a head."""
    if task is not None:
        found = NEEDS.get("translation" if task.startswith("translation_") else OTHER_TASK_NAMES.get(task, task))
        return [] if found is None else [found]
    if any(file.name == _SENTENCE_FILE for file in model.files):
        return [NEEDS["sentence-embedding"]]
    names = telling_names(model.config)
    return [
        needs
        for needs in dict.fromkeys(NEEDS.values())
        if BASE_MODEL not in needs.models
        and any(auto in names or _class_of(model, auto, library) in names for auto in needs.models)
    ]


def is_headless(model: ModelFiles, library: Library) -> bool:
    """Whether it was saved without the head of any task."""
    return _class_of(model, BASE_MODEL, library) in telling_names(model.config)


def _class_of(model: ModelFiles, auto_class: str, library: Library) -> str | None:
    return library.class_for(auto_class, str(model.config.get("model_type")))


def tasks_for(model_type: str, library: Library) -> list[str]:
    """The tasks that the library has a class of this architecture for."""
    return [task for task, needs in NEEDS.items() if any(library.class_for(auto, model_type) for auto in needs.models)]
