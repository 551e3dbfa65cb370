"""What stands in the files of a served model: one line that names the backend, or the code itself."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from trireme.config.autofill import ENGINE_DESCRIPTION
from trireme.huggingface.saved_classes import telling_names
from trireme.tools.deploy.checks.task import (
    GENERATION,
    is_causal,
    is_conversing,
    is_engine_served,
    is_generating,
)
from trireme.tools.deploy.folder.fingerprint import stamped
from trireme.tools.deploy.folder.model_folder import CODE_NAME, CONFIG_NAME, ModelFolder, parameter_lines
from trireme.tools.deploy.hub.model_files import ModelFiles
from trireme.tools.deploy.options import USUAL_BATCH_SIZE, USUAL_NEW_TOKENS, DeployError, DeployOptions

_EJECTED = "ejected_model.txt"


def folder_of(path: Path, model: ModelFiles, device: str, options: DeployOptions) -> ModelFolder:
    """The folder as it was asked for."""
    if _was_built(model) and (options.is_ejected or options.backend == "transformers"):
        raise DeployError(_why_not_without_engine(model, options))
    if options.is_ejected:
        texts = _ejected(model, device, options)
    elif is_engine_served(model, options, device):
        texts = _with_engine(model, device, options)
    else:
        texts = _with_backend(model, device, options)
    return ModelFolder(path, model.reference, texts)


def _with_engine(model: ModelFiles, device: str, options: DeployOptions) -> dict[str, str]:
    """Names the model, and leaves everything else to the engine for language models."""
    parameters = _parameters(model, device, options)
    if options.max_new_tokens is None:  # nobody has said so: answers end by themselves
        parameters.pop("max_new_tokens", None)
    if options.batch_size is not None:
        parameters["max_sequences"] = str(options.batch_size)
    lines = [
        f"# {model.reference}. It takes 'text_input' or 'messages', streams, and speaks OpenAI's API.",
        'backend: "llm"',
        *parameter_lines(parameters),
    ]
    return {CONFIG_NAME: stamped("\n".join(lines) + "\n"), "1/.keep": ""}


def _with_backend(model: ModelFiles, device: str, options: DeployOptions) -> dict[str, str]:
    """Names the model, and leaves everything else to the transformers backend."""
    parameters = _parameters(model, device, options)
    if options.task is not None:
        parameters["task"] = options.task
    if is_conversing(model, options):
        parameters["chat"] = "true"
    lines = [
        f"# {model.reference}. Inputs and outputs follow from the task of the model.",
        'backend: "transformers"',
        f"max_batch_size: {options.batch_size or USUAL_BATCH_SIZE}",
        *parameter_lines(parameters),
    ]
    # The version folder has to exist, and a folder without a file would not survive git or zip.
    return {CONFIG_NAME: stamped("\n".join(lines) + "\n"), "1/.keep": ""}


def _ejected(model: ModelFiles, device: str, options: DeployOptions) -> dict[str, str]:
    """The python backend, and the code that it runs."""
    if options.task not in (None, GENERATION) or not is_causal(model):
        raise DeployError(_why_not_ejected(model, options.task))
    lines = [
        f"# {model.reference}, run by the code in 1/model.py, which reads these parameters.",
        'backend: "python"',
        f"max_batch_size: {options.batch_size or USUAL_BATCH_SIZE}",
        "dynamic_batching { max_queue_delay_microseconds: 2000 }",
        'input [ { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] } ]',
        'output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]',
        *parameter_lines(_parameters(model, device, options)),
    ]
    code = resources.files(__package__).joinpath(_EJECTED).read_text(encoding="utf-8")
    return {CONFIG_NAME: stamped("\n".join(lines) + "\n"), CODE_NAME: code}


def _was_built(model: ModelFiles) -> bool:
    return any(file.name == ENGINE_DESCRIPTION for file in model.files)


def _why_not_without_engine(model: ModelFiles, options: DeployOptions) -> str:
    flag, who = ("--eject", "a model.py") if options.is_ejected else ("--backend transformers", "that backend")
    return (
        f"{flag}: '{model.reference}' was written by 'trireme build', for the engine for language models alone, and "
        f"{who} loads models with transformers, which cannot read it. Leave {flag} out, or deploy the folder that it "
        "was built from"
    )


def _why_not_ejected(model: ModelFiles, task: str | None) -> str:
    names = telling_names(model.config)
    found = (
        f"is asked for {task}" if task not in (None, GENERATION) else f"is {names[0] if names else 'of no known class'}"
    )
    return (
        f"--eject writes a model.py for {GENERATION} alone, by models that continue text (classes that end in "
        f"ForCausalLM or LMHeadModel), and '{model.reference}' {found}. Leave --eject out: then the transformers "
        "backend serves it, and what can be changed are the parameters in config.pbtxt"
    )


def _parameters(model: ModelFiles, device: str, options: DeployOptions) -> dict[str, str]:
    parameters = {"model": model.reference}
    revision = model.commit or options.revision
    new_tokens = options.max_new_tokens or USUAL_NEW_TOKENS
    optional: Mapping[str, str | None] = {
        "revision": revision,
        "device": device if device != "cpu" or options.device == "cpu" else None,
        "dtype": options.dtype if options.dtype != "auto" else None,
        "max_new_tokens": str(new_tokens) if is_generating(model, options.task) else None,
        "trust_remote_code": "true" if options.trusts_remote_code else None,
    }
    return parameters | {key: value for key, value in optional.items() if value is not None}
