"""What is wrong with a model, told from its small files before it is loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_task_models import KINDS, task_model

from trireme.backends.transformers.tasks import TASKS, canonical_task
from trireme.huggingface.tasks import OTHER_TASK_NAMES, TASK_CLASSES
from trireme.tools.deploy.checks.library import Library, installed_library, is_torch_without_gpu
from trireme.tools.deploy.checks.needs import NEEDS
from trireme.tools.deploy.checks.problems import Problem, find_problems
from trireme.tools.deploy.hub.model_files import ModelFile, ModelFiles, read_folder
from trireme.tools.deploy.options import DeployOptions

OPT = {"architectures": ["OPTForCausalLM"], "model_type": "opt"}
OWN = {
    "architectures": ["Own"],
    "model_type": "own",
    "auto_map": {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.Own"},
}
WHISPER = {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"}
SOUND = {"architectures": ["Wav2Vec2ForSequenceClassification"], "model_type": "wav2vec2"}
TOKENIZER = "tokenizer.json"
SCRIBE = Path(__file__).parents[4] / "examples/model_repository/scribe/1"
PROCESSOR = "preprocessor_config.json"


@pytest.fixture(scope="module")
def library() -> Library:
    found = installed_library()
    assert found is not None
    return found


def model_of(config: dict[str, Any], names: Sequence[str]) -> ModelFiles:
    return ModelFiles("owner/model", "the hub", None, tuple(ModelFile(name, 10) for name in names), config)


def told_of(library: Library, config: dict[str, Any], *names: str, **wishes: Any) -> list[Problem]:
    return find_problems(model_of(config, names), DeployOptions("owner/model", **wishes), "cpu", library)


def refusal_of(library: Library, config: dict[str, Any], *names: str, **wishes: Any) -> str:
    (problem,) = told_of(library, config, *names, **wishes)
    assert problem.is_certain
    return problem.text


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_can_be_loaded_have_no_problem(kind: str, library: Library) -> None:
    folder = task_model(kind)
    model = read_folder(folder, str(folder), "this folder")
    assert find_problems(model, DeployOptions(str(folder)), "cpu", library) == []


@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt", "spiece.model", "qwen.tiktoken", "tekken.json"])
def test_a_text_task_needs_any_file_of_a_tokenizer(library: Library, file: str) -> None:
    assert told_of(library, OPT, file) == []
    assert refusal_of(library, OPT, PROCESSOR).startswith("it has no tokenizer")


def test_images_and_sounds_need_the_file_that_says_how_they_are_prepared(library: Library) -> None:
    assert told_of(library, WHISPER, TOKENIZER, PROCESSOR) == []
    assert refusal_of(library, WHISPER, TOKENIZER).startswith("it has no preprocessor_config.json")
    assert told_of(library, SOUND, "processor_config.json") == []


def test_a_model_without_a_head_needs_something_that_prepares_its_inputs(library: Library) -> None:
    headless = {"architectures": ["BertModel"], "model_type": "bert"}
    assert told_of(library, headless, TOKENIZER) == told_of(library, headless, PROCESSOR) == []
    assert refusal_of(library, headless).startswith("it has neither a tokenizer nor a preprocessor_config.json")
    assert refusal_of(library, headless, "modules.json").startswith("it has no tokenizer")


def test_code_of_its_own_has_to_be_there_and_to_be_trusted(library: Library) -> None:
    code = ("configuration_own.py", "modeling_own.py", TOKENIZER)
    told = refusal_of(library, OWN, *code)
    assert "(configuration_own.py, modeling_own.py)" in told
    assert told.endswith("allow it with --trust-remote-code")
    assert told_of(library, OWN, *code, trusts_remote_code=True) == []
    assert "not among its files: modeling_own.py" in refusal_of(library, OWN, code[0], trusts_remote_code=True)
    elsewhere = {**OWN, "auto_map": {"AutoModelForCausalLM": "me/code--modeling_own.Own"}}
    assert "(modeling_own.py of me/code)" in refusal_of(library, elsewhere, TOKENIZER)


def test_code_of_its_own_that_the_library_does_not_need_is_let_be(library: Library) -> None:
    falcon = {
        "architectures": ["FalconForCausalLM"],
        "model_type": "falcon",
        "auto_map": {"AutoModelForCausalLM": "modeling_falcon.FalconForCausalLM"},
    }
    assert told_of(library, falcon, TOKENIZER) == []


def test_an_architecture_that_the_library_does_not_know_is_told(library: Library) -> None:
    later = {"architectures": ["LaterForCausalLM"], "model_type": "later"}
    assert "does not know its architecture 'later'" in refusal_of(library, later, TOKENIZER)
    assert "no 'model_type'" in refusal_of(library, {"architectures": ["OPTForCausalLM"]}, TOKENIZER)
    assert "names no architecture" in refusal_of(library, {"model_type": "opt"}, TOKENIZER)
    assert told_of(library, {"model_type": "opt"}, TOKENIZER, task="text-generation") == []


def test_a_task_that_the_architecture_has_no_class_for_is_refused_with_those_it_has(library: Library) -> None:
    told = refusal_of(library, OPT, TOKENIZER, task="object-detection")
    assert told.startswith("it cannot do object-detection: ")
    assert "Its tasks are text-generation, text-classification," in told


@pytest.mark.parametrize(
    ("kind", "task", "is_random"),
    [
        ("bert-features", "question-answering", True),
        ("bert-classifier", "question-answering", True),
        ("bert-classifier", "text-generation", True),
        ("bert-classifier", "sentiment-analysis", False),
        ("bert-mask", "text-generation", False),
        ("bert-answers", "feature-extraction", False),
        ("bert-entailment", "token-classification", False),
    ],
)
def test_a_head_that_is_not_among_the_weights_is_warned_of(
    kind: str, task: str, is_random: bool, library: Library
) -> None:
    folder = task_model(kind)
    model = read_folder(folder, str(folder), "this folder")
    found = find_problems(model, DeployOptions(str(folder), task=task), "cpu", library)
    assert [problem.is_certain for problem in found] == ([False] if is_random else [])
    assert not is_random or "transformers fills it with random numbers" in found[0].text


def test_a_device_that_the_installed_packages_cannot_use_is_told(tmp_path: Path, library: Library) -> None:
    model = model_of(OPT, [TOKENIZER])
    (problem,) = find_problems(model, DeployOptions("owner/model"), "hpu:0", library)
    assert problem.is_certain
    assert "habana_frameworks" in problem.text
    (problem,) = find_problems(model, DeployOptions("owner/model", is_served=False), "hpu:0", library)
    assert not problem.is_certain, "it may be served elsewhere"
    for line, is_without in (
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", True),
        ("cuda = None\n", True),
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", False),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n", False),
    ):
        (tmp_path / "version.py").write_text(line)
        assert is_torch_without_gpu(tmp_path) is is_without


@pytest.mark.parametrize(
    ("wishes", "device", "missing"),
    [
        ({}, "cpu", []),
        ({"dtype": "float32"}, "cpu", []),
        ({"dtype": "bfloat16"}, "cpu", ["torch"]),
        ({}, "cuda:0", ["torch"]),
        ({"backend": "transformers"}, "cpu", ["torch, transformers"]),
        ({"is_ejected": True}, "cpu", ["torch, transformers"]),
        ({"is_served": False}, "cpu", []),
        ({"is_dry_run": True}, "cpu", []),
    ],
)
def test_the_engine_computes_with_numpy_where_pytorch_is_missing(
    wishes: dict[str, Any], device: str, missing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)  # which find_spec reads as missing
    model = read_folder(SCRIBE, str(SCRIBE), "this folder")
    found = find_problems(model, DeployOptions(str(SCRIBE), **wishes), device)
    assert [problem.text.partition(";")[0].removeprefix("not installed here: ") for problem in found] == missing
    assert all("pip install -c constraints.txt '.[transformers]'" in problem.text for problem in found)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"architectures": ["BloomForCausalLM"], "model_type": "bloom"}, "torch, transformers"),
        ("tokenizer.json", "transformers"),
        ("model.safetensors", "torch"),
    ],
)
def test_what_the_engine_does_not_read_by_itself_needs_the_packages(
    change: dict[str, Any] | str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    folder = Path(shutil.copytree(SCRIBE, tmp_path / "scribe"))
    if isinstance(change, str):
        (folder / change).rename(folder / {"tokenizer.json": "vocab.json"}.get(change, "pytorch_model.bin"))
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **change}))
    (problem,) = find_problems(read_folder(folder, str(folder), "this folder"), DeployOptions(str(folder)), "cpu")
    assert problem.is_certain
    assert problem.text.startswith(f"not installed here: {missing};")


def test_the_library_is_read_as_older_and_newer_releases_write_it(tmp_path: Path) -> None:
    (tmp_path / "models/auto").mkdir(parents=True)
    (tmp_path / "__init__.py").write_text('__version__ = "4.1.0"\n')
    assert installed_library(tmp_path) == Library("4.1.0")
    (tmp_path / "models/auto/configuration_auto.py").write_text(
        'CONFIG_MAPPING_NAMES = OrderedDict([("gpt2", "GPT2Config"), ("gpt-sw3", "GPT2Config"), ("vit", "ViTConfig")])'
    )
    (tmp_path / "models/auto/modeling_auto.py").write_text(
        'A_NAMES = OrderedDict([("gpt2", ("GPT2Model", "GPT2Other"))])\n'
        'B_NAMES = OrderedDict(**{"vit": "ViTModel"}, **A_NAMES)\n'
        "B = _LazyAutoMapping(CONFIG_MAPPING_NAMES, B_NAMES)\n"
        "class AutoModel(_BaseAutoModelClass):\n    _model_mapping = B\n"
    )
    found = installed_library(tmp_path)
    assert found is not None
    assert (found.knows("vit"), found.knows("later"), Library("1").knows("vit")) == (True, False, None)
    assert found.class_for("AutoModel", "gpt-sw3") == "GPT2Model"
    assert found.class_for("AutoModel", "vit") == "ViTModel"
    assert found.class_for("AutoModelForCausalLM", "vit") is None


def test_needs_are_those_of_the_backend() -> None:
    assert TASKS.keys() == TASK_CLASSES.keys()
    assert NEEDS.items() <= TASK_CLASSES.items()
    assert {name: canonical_task(name, "m") for name in OTHER_TASK_NAMES} == OTHER_TASK_NAMES


def test_asking_the_library_imports_neither_it_nor_torch() -> None:
    program = (
        "import sys; from trireme.tools.deploy.checks.library import installed_library, is_torch_without_gpu; "
        "is_torch_without_gpu(); found = installed_library(); "
        "print(len(found.configs) > 100, {'torch', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True set()\n"
