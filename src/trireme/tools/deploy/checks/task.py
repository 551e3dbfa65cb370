"""What a model is for, as far as deploying has to know: the backend finds out the rest."""

from __future__ import annotations

from trireme.config.autofill import ENGINE_DESCRIPTION
from trireme.core.close_names import closest
from trireme.huggingface.saved_classes import telling_names
from trireme.huggingface.tasks import OTHER_TASK_NAMES, TASK_CLASSES
from trireme.tools.deploy.hub.model_files import ModelFiles
from trireme.tools.deploy.options import DeployError, DeployOptions

GENERATION = "text-generation"
TASKS = tuple(TASK_CLASSES)
"""What the transformers backend serves."""
_WRITING = {GENERATION, "text2text-generation", "summarization", "translation", "automatic-speech-recognition"}
_WRITING |= {"image-text-to-text", "image-to-text", "visual-question-answering", "any-to-any"}
_SEEING = {"image-text-to-text", "any-to-any"}
_SEEING_PARTS = ("vision_config", "audio_config", "thinker_config")
_PROCESSOR_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_WRITING_CLASSES = (*_CAUSAL, "ForConditionalGeneration", "ForSeq2SeqLM", "ForSpeechSeq2Seq", "MTModel")


def checked_task(wanted: str | None) -> str | None:
    """The task that was named; raises DeployError for a name that is none."""
    if wanted is None or wanted in TASKS or wanted in OTHER_TASK_NAMES or wanted.startswith("translation_"):
        return wanted
    nearest = closest(wanted, [*TASKS, *OTHER_TASK_NAMES])
    suggestion = f" Did you mean '{nearest}'?" if nearest else ""
    raise DeployError(f"--task: there is no task '{wanted}'.{suggestion} The tasks are:\n  " + "\n  ".join(TASKS))


def is_causal(model: ModelFiles) -> bool:
    """Whether config.json names a class that continues text."""
    return any(name.endswith(_CAUSAL) for name in telling_names(model.config))


def is_generating(model: ModelFiles, task: str | None) -> bool:
    """Whether it writes token by token, and so keeps keys and values."""
    if task is not None:
        return task in _WRITING
    return any(name.endswith(_WRITING_CLASSES) for name in telling_names(model.config))


def is_engine_served(model: ModelFiles, options: DeployOptions, device: str) -> bool:
    """Whether the engine for language models serves it, which streams, chats and batches by itself."""
    if options.is_ejected or options.backend == "transformers":
        return False
    if options.backend == "llm" or any(file.name == ENGINE_DESCRIPTION for file in model.files):
        return True
    return (
        options.task in (None, GENERATION)
        and not options.trusts_remote_code
        and device.partition(":")[0] in ("cpu", "cuda")
        and is_causal(model)
        and not _is_seeing(model)
        and "quantization_config" not in model.config
    )


def is_conversing(model: ModelFiles, options: DeployOptions) -> bool:
    """Whether it is served as a chat, with the template that its tokenizer has, or its processor of other inputs."""
    if not options.uses_chat_template or options.is_ejected:
        return False
    if _is_seeing(model) if options.task is None else options.task in _SEEING:
        return any(file.name in _PROCESSOR_TEMPLATES for file in model.files)
    writes = is_causal(model) if options.task is None else options.task == GENERATION
    return writes and model.has_chat_template


def _is_seeing(model: ModelFiles) -> bool:
    """Whether it writes about more than texts."""
    return is_generating(model, None) and any(part in model.config for part in _SEEING_PARTS)
