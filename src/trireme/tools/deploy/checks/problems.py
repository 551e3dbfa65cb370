"""What will keep a model from being loaded, found out from its small files before anything is fetched or written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trireme.core.wording.extras import install_line
from trireme.huggingface.saved_classes import telling_names
from trireme.huggingface.tasks import TOKENIZER, TaskClasses
from trireme.tools.deploy.checks.engine import packages_for
from trireme.tools.deploy.checks.heads import missing_head
from trireme.tools.deploy.checks.library import Library, installed_library, is_torch_without_gpu, package_folder
from trireme.tools.deploy.checks.needs import is_headless, needs_of, tasks_for
from trireme.tools.deploy.hub.model_files import ModelFiles
from trireme.tools.deploy.options import DeployOptions

_TOKENIZER_STARTS = ("tokenizer", "vocab", "merges", "spiece", "sentencepiece", "tekken", "bpe")
_TOKENIZER_ENDS = (".model", ".spm", ".tiktoken", ".codes")
_OWN_PROCESSORS = ("timm_wrapper",)
"""Architectures whose config.json says how images are prepared."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and what to do about it."""

    text: str
    is_certain: bool = True
    """Whether loading fails because of it; otherwise it is worth a warning."""


def find_problems(
    model: ModelFiles, options: DeployOptions, device: str, library: Library | None = None
) -> list[Problem]:
    """All that is wrong with serving this model on this device; `library` stands in for what is installed."""
    found = list(_about_packages(model, device, options))
    library = library or installed_library()
    if library is not None:
        found += _about_model(model, options, library)
    return found


def _about_packages(model: ModelFiles, device: str, options: DeployOptions) -> Iterator[Problem]:
    """What is not installed matters where the server starts, and may be there where it is started later."""
    is_needed = options.is_served and not options.is_dry_run
    missing = [name for name in packages_for(model, options, device) if package_folder(name) is None]
    if missing:
        yield Problem(f"not installed here: {', '.join(missing)}; {install_line('transformers')}", is_needed)
    elif device.startswith("cuda") and is_torch_without_gpu():
        yield Problem(
            f"the PyTorch that is installed here was built for CPUs alone, and the model is placed on {device}: "
            "install a build with CUDA, or say --device cpu",
            is_needed,
        )
    elif device.startswith("hpu") and package_folder("habana_frameworks") is None:
        yield Problem(
            f"Gaudi's software for PyTorch (habana_frameworks) is not installed here, and the model is placed on "
            f"{device}: install it, or say --device cpu",
            is_needed,
        )


def _about_model(model: ModelFiles, options: DeployOptions, library: Library) -> list[Problem]:
    wanted = needs_of(model, options.task, library)
    if not isinstance(model.config.get("auto_map"), dict) or _is_known(model, library, wanted):
        found = list(_about_architecture(model, options, library, wanted))
    else:
        found = list(_about_own_code(model, options, library))
    if any(problem.is_certain for problem in found):
        return found
    return [*found, *_about_inputs(model, wanted, is_headless=is_headless(model, library))]


def _about_own_code(model: ModelFiles, options: DeployOptions, library: Library) -> Iterator[Problem]:
    files = sorted({_code_of(entry) for entry in model.config["auto_map"].values()})
    present = {file.name for file in model.files}
    absent = [file for file in files if " of " not in file and file not in present]
    if absent:
        yield Problem(f"its config.json names code that is not among its files: {', '.join(absent)}")
    elif not options.trusts_remote_code:
        yield Problem(
            f"it brings Python code of its own ({', '.join(files)}), and transformers {library.version} cannot load it "
            "without: read that code, then allow it with --trust-remote-code",
            bool(library.configs),
        )


def _is_known(model: ModelFiles, library: Library, wanted: list[TaskClasses]) -> bool:
    """Whether the library has a class of its own, which it prefers, so that nothing has to be trusted."""
    model_type = str(model.config.get("model_type"))
    autos = [auto for needs in wanted for auto in needs.models]
    has_class = not autos or any(library.class_for(auto, model_type) for auto in autos)
    return library.knows(model_type) is True and has_class


def _code_of(entry: object) -> str:
    """The file that an entry of `auto_map` means: `modeling.py` for `modeling.Model`."""
    name = next((part for part in entry if part), "") if isinstance(entry, list) else entry
    place, _, rest = str(name).rpartition("--")
    file = f"{rest.rpartition('.')[0].replace('.', '/')}.py"
    return f"{file} of {place}" if place else file


def _about_architecture(
    model: ModelFiles, options: DeployOptions, library: Library, wanted: list[TaskClasses]
) -> Iterator[Problem]:
    model_type = model.config.get("model_type")
    if not isinstance(model_type, str):
        if not any(known in model.reference for known in library.configs):  # releases may tell it from the name
            yield Problem(
                "its config.json has no 'model_type', so transformers cannot tell which architecture it is; save the "
                "model with save_pretrained again, or add the line"
            )
        return
    if library.knows(model_type) is False:
        yield Problem(
            f"transformers {library.version} does not know its architecture '{model_type}'; a later release may: "
            "pip install --upgrade transformers"
        )
    elif options.task is None:
        if not telling_names(model.config):
            yield Problem(
                "its config.json names no architecture, so nobody can tell what it is for: say it with --task, "
                f"one of {', '.join(tasks_for(model_type, library))}",
                not any(file.name == "modules.json" for file in model.files),
            )
    else:
        yield from _about_task(model, options.task, model_type, library, wanted)


def _about_task(
    model: ModelFiles, task: str, model_type: str, library: Library, wanted: list[TaskClasses]
) -> Iterator[Problem]:
    autos = [auto for needs in wanted for auto in needs.models]
    classes = [made for auto in autos if (made := library.class_for(auto, model_type))]
    if autos and not classes and all(auto in library.classes for auto in autos):
        possible = ", ".join(tasks_for(model_type, library)) or "none that is served"
        yield Problem(
            f"it cannot do {task}: transformers {library.version} has no class of the architecture '{model_type}' for "
            f"that. Its tasks are {possible}; leave --task out, or take a model that was made for {task}"
        )
    elif classes:
        text = missing_head(model, task, autos, classes)
        if text is not None:
            yield Problem(text, is_certain=False)


def _about_inputs(model: ModelFiles, wanted: list[TaskClasses], *, is_headless: bool) -> Iterator[Problem]:
    """Where several tasks come into question, one that finds its files is enough."""
    lacking = [_lacking(model, needs) for needs in wanted]
    if lacking and all(lacking):
        yield Problem(lacking[0])
    elif is_headless and not wanted and not _has_tokenizer(model) and not _has_processor(model):
        yield Problem(
            "it has neither a tokenizer nor a preprocessor_config.json, so no input can be prepared for it: put those "
            "files beside config.json, as the save_pretrained of the tokenizer or of the processor writes them"
        )


def _lacking(model: ModelFiles, needs: TaskClasses) -> str:
    if TOKENIZER in needs.beside and not _has_tokenizer(model):
        return (
            "it has no tokenizer, and this task reads or writes text: put the tokenizer's files (tokenizer.json and "
            "tokenizer_config.json, as its save_pretrained writes them) beside config.json"
        )
    if set(needs.beside) - {TOKENIZER} and not _has_processor(model):
        return (
            "it has no preprocessor_config.json, which says how images or sounds are prepared: copy it from the model "
            "that this one was made of, or write it with the processor's save_pretrained, beside config.json"
        )
    return ""


def _has_tokenizer(model: ModelFiles) -> bool:
    """Whether any file can be a tokenizer's, by its name."""
    own = model.config.get("auto_map")
    return (isinstance(own, dict) and TOKENIZER in own) or any(
        name.startswith(_TOKENIZER_STARTS) or name.endswith(_TOKENIZER_ENDS) for name in _top_names(model)
    )


def _has_processor(model: ModelFiles) -> bool:
    is_told_elsewhere = model.config.get("model_type") in _OWN_PROCESSORS
    return is_told_elsewhere or any(name.endswith("processor_config.json") for name in _top_names(model))


def _top_names(model: ModelFiles) -> list[str]:
    return [file.name for file in model.files if "/" not in file.name]
