"""The kinds of models there are templates for, and the files of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

from trireme.tools.new_model.onnx_file import line_model

DEFAULT_HUB_MODEL = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"
_WITHOUT_CODE = {"{name}/config.pbtxt": "config.pbtxt", "{name}/test_{word}.py": "test.py"}
_WITH_CODE = {**_WITHOUT_CODE, "{name}/1/model.py": "model.py"}


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of model."""

    summary: str
    files: Mapping[str, str]
    """Paths below the repository, and the files of the template that they are made of."""
    folders: tuple[str, ...] = ("{name}/1",)
    """Version folders, which may stay empty."""
    binaries: Mapping[str, bytes] = field(default_factory=dict)
    package: str | None = None
    """What has to be installed for the model to run, as Python imports it."""
    install: str = ""
    """The same as pip calls it."""


TEMPLATES: Mapping[str, Template] = {
    "python": Template("Python code, batched", _WITH_CODE),
    "decoupled": Template("Python code that sends any number of responses to a request", _WITH_CODE),
    "onnx": Template(
        "an ONNX file",
        _WITHOUT_CODE,
        binaries={"{name}/1/model.onnx": line_model()},
        package="onnxruntime",
        install="onnxruntime",
    ),
    "sklearn": Template("an estimator of scikit-learn", _WITH_CODE, package="sklearn", install="scikit-learn"),
    "transformers": Template(
        "a model of the Hugging Face Hub", _WITHOUT_CODE, package="transformers", install="'.[transformers]'"
    ),
    "ensemble": Template(
        "several models in a row",
        {
            **_WITHOUT_CODE,
            "{name}_clean/config.pbtxt": "clean.pbtxt",
            "{name}_clean/1/model.py": "clean.py",
            "{name}_count/config.pbtxt": "count.pbtxt",
            "{name}_count/1/model.py": "count.py",
        },
        folders=("{name}/1", "{name}_clean/1", "{name}_count/1"),
    ),
}


def template_files(kind: str, name: str, repository: str, hub_model: str) -> dict[str, bytes]:
    """The content of every file of a new model, by its path below the repository."""
    template = TEMPLATES[kind]
    source = resources.files(__package__) / "templates" / kind
    words = {"@NAME@": name, "@FOLDER@": f"{repository}/{name}", "@MODEL@": hub_model}
    found = dict(template.binaries)
    for path, file_name in template.files.items():
        text = (source / f"{file_name}.template").read_text("utf-8")
        for word, value in words.items():
            text = text.replace(word, value)
        found[path] = text.encode()
    return {placed(path, name): content for path, content in found.items()}


def placed(path: str, name: str) -> str:
    """A path of a template for a model of this name."""
    return path.format(name=name, word=re.sub(r"\W", "_", name))
