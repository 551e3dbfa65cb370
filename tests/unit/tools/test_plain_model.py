"""Which backend a plain folder of Hugging Face gets, and what is written for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trireme.config.text.pbtxt import parse_text
from trireme.tools.deploy.options import DeployError
from trireme.tools.plain_model import plain_model

CAUSAL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
OTHER_CAUSAL = {**CAUSAL, "quantization_config": {}}
CLASSIFIER = {"architectures": ["BertForSequenceClassification"], "model_type": "bert"}
TEMPLATE = {"chat_template": "{{ messages }}"}


@pytest.fixture(autouse=True)
def cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_DEVICES", "cpu")


def saved(folder: Path, config: object, tokenizer: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "model.safetensors").touch()
    return folder


@pytest.mark.parametrize(
    ("config", "tokenizer", "backend", "parameters"),
    [
        (CAUSAL, TEMPLATE, "llm", {}),
        (CAUSAL, {}, "llm", {}),
        (OTHER_CAUSAL, TEMPLATE, "transformers", {"chat": "true"}),
        (OTHER_CAUSAL, {}, "transformers", {}),
        (CLASSIFIER, TEMPLATE, "transformers", {}),
    ],
)
def test_folder_gets_the_backend_that_a_deployment_would_have(
    tmp_path: Path, config: object, tokenizer: dict[str, Any], backend: str, parameters: dict[str, str]
) -> None:
    folder = saved(tmp_path / "saved", config, tokenizer)
    model = plain_model(folder)
    assert f'(backend "{backend}")' in model.told
    model.write(tmp_path / "repository" / "saved")
    message = parse_text((tmp_path / "repository/saved/config.pbtxt").read_text(), "config.pbtxt")
    assert message.backend == backend
    assert {key: value.string_value for key, value in message.parameters.items()} == parameters
    assert (tmp_path / "repository/saved/1").resolve() == folder


def test_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"config\.json' does not hold an object"):
        plain_model(saved(tmp_path / "saved", [], {}))
