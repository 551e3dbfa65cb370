"""The lists of parameters that are checked without a worker are those that the workers' files ask for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import trireme.backends
from trireme.backends.parameter_problems import RULES, parameter_problems
from trireme.backends.services import ModelSource
from trireme.config.text.pbtxt import parse_text

FOLDER = Path(trireme.backends.__file__).parent


def asked_for(folder: Path) -> set[tuple[str, tuple[str, ...]]]:
    """Every `parameters.whole("...")` and `parameters.flag("...")` in the files of a backend."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            is_asking = isinstance(node.func.value, ast.Name) and node.func.value.id == "parameters"
            if is_asking and node.func.attr in ("whole", "flag"):
                names = tuple(argument.value for argument in node.args if isinstance(argument, ast.Constant))
                if names:
                    found.add((node.func.attr, names))
    return found


@pytest.mark.parametrize("backend", sorted(RULES))
def test_rules_are_those_of_the_backend(backend: str) -> None:
    kinds = {"_Whole": "whole", "_Flag": "flag"}
    rules = {(kinds[kind], rule.names) for rule in RULES[backend] if (kind := type(rule).__name__) in kinds}
    in_a_loop = {("flag", ("enable_mem_arena",)), ("flag", ("enable_mem_pattern",))}
    assert rules - in_a_loop == asked_for(FOLDER / backend)


def test_every_backend_that_asks_has_rules() -> None:
    asking = {folder.name for folder in FOLDER.iterdir() if folder.is_dir() and asked_for(folder)}
    assert asking - {"gaudi"} == set(RULES)  # gaudi is no backend: models import it


@pytest.mark.parametrize(
    ("backend", "key", "value", "told"),
    [
        ("onnxruntime", "execution_mode", "x", "must be a whole number, found 'x'"),
        ("fil", "predict_proba", "perhaps", "must be true or false, found 'perhaps'"),
        ("xgboost", "nthread", "0", "must be at least 1, found 0"),
        ("fil", "model_type", "forest", "must be one of xgboost_ubj, xgboost_json"),
        ("fil", "threshold", "half", "must be a number, found 'half'"),
        ("tensorrtllm", "gpt_model_path", "nowhere", "there is no checkpoint for 'nowhere'"),
        ("fastertransformer", "tensor_para_size", "x", "must be a whole number of at least 1, found 'x'"),
        ("llm", "tool_parser", "none of these", "must be auto or none"),
        ("llm", "max_sequnces", "3", "did you mean 'max_sequences'?"),
        ("llm", "adapters", "nowhere", "which is neither in"),
    ],
)
def test_wrong_value_is_told_with_its_parameter(backend: str, key: str, value: str, told: str, tmp_path: Path) -> None:
    text = f'backend: "{backend}" parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
    source = ModelSource("m", 1, tmp_path, tmp_path / "1", parse_text(text, "config.pbtxt"))
    ((found, sentence),) = parameter_problems(source)
    assert found == key or value in sentence
    assert told in sentence


def test_checkpoint_for_another_number_of_ranks_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "1" / "1-gpu"
    folder.mkdir(parents=True)
    (folder / "config.ini").write_text("[gptneox]\n")
    (folder / "model.layers.0.attention.query_key_value.weight.0.bin").touch()
    text = 'backend: "fastertransformer" parameters { key: "tensor_para_size" value: { string_value: "2" } }'
    (problem,) = parameter_problems(ModelSource("model", 1, tmp_path, tmp_path / "1", parse_text(text, "config.pbtxt")))
    assert "is a checkpoint for one rank, but 2 are asked for; set tensor_para_size to 1" in problem[1]
