"""What older model files ask of the installed transformers, with the patches and without them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_models

PROGRAM = Path(__file__).with_name("drifted_calls.py")
SOURCE = Path(__file__).parents[3] / "src"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


FLOAT16 = (
    "logits of float16",
    "text of float16",
    "fixed cache",
    "float16 in",
    "no dictionary",
    "type",
    "a layer of its type",
    "forward by itself",
    "a copy",
    "float16 from float32",
    "converted twice",
    "back to float32",
    "float32 of an owner",
    "float16 of an owner",
    "float16 in the files",
    "images and texts",
    "features",
    "a part",
)
"""Calls with models of float16, which give the same in whatever type they are computed."""


def outcomes(folder: Path, **variables: str) -> tuple[dict[str, Any], str]:
    """What came of each call, and what was told on the way. The model's own cache is empty, the usual one is not."""
    own, home = folder / "own", folder / "home"
    own.mkdir()
    repository = home / "hub" / "models--someone--tiny-model"
    tiny_models.tiny_causal_lm(repository / "snapshots" / COMMIT, "llama")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    variables = {"HF_HOME": str(home), "HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": "", **variables}
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    fixed = {"HF_HUB_OFFLINE": "1", "TRIREME_DEVICE": "cpu", "TRIREME_CPU_FLOAT16": "float32"}  # on any processor
    environment = {**os.environ, **fixed, "PYTHONPATH": path, **variables}
    command = [sys.executable, str(PROGRAM), str(tiny_models.cached("llama")), str(own), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def absorbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    return outcomes(tmp_path_factory.mktemp("absorbed"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcomes(tmp_path_factory.mktemp("plain"), TRIREME_LIBRARY_DRIFT="0")[0]


def test_every_call_of_an_older_file_works(absorbed: tuple[dict[str, Any], str]) -> None:
    made = absorbed[0]
    pair = made["token ids"]
    expected = {
        "usual cache": pair,
        "encode_plus": pair,
        "batch_encode_plus again": [1, 2],
        "use_auth_token": True,
        "dtype": "torch.float32",
        "torch_dtype": "torch.float32",
        "dtype by name": "torch.float32",
        "device_map": "cpu",
        "pipeline device_map": "cpu",
        "token in header": None,
        "short prompt": 15,
        "long prompt": 1,
        "long prompt again": 1,
        "new tokens win": 20,
        "generate": 1,
    }
    assert {name: made[name] for name in expected} == expected
    assert made["batch_encode_plus"][0] == pair


def test_what_worked_before_gives_the_same(absorbed: tuple[dict[str, Any], str], plain: dict[str, Any]) -> None:
    for name in ("token ids", "greedy text", "new tokens win", *FLOAT16):
        assert absorbed[0][name] == plain[name], name


def test_values_of_float16_differ_by_rounding_only(absorbed: tuple[dict[str, Any], str], plain: dict[str, Any]) -> None:
    assert plain["dtype"] == plain["torch_dtype"] == "torch.float16"
    assert absorbed[0]["values of float16"] == pytest.approx(plain["values of float16"], abs=2e-3)


def test_whoever_asks_for_float32_has_it(absorbed: tuple[dict[str, Any], str]) -> None:
    assert absorbed[0]["back to float32"] == absorbed[0]["float32 of an owner"] == "float32"


def test_the_library_alone_refuses(plain: dict[str, Any]) -> None:
    assert "requires `accelerate`" in plain["device_map"]
    assert plain["token in header"] == "Bearer "
    assert plain["generate"].startswith("ValueError: Input length of input_ids")
    if plain["release"] >= 5:
        assert plain["batch_encode_plus"].startswith("AttributeError")
        assert plain["use_auth_token"].startswith("TypeError")
    else:
        assert plain["short prompt"] > 15  # its own limit of new tokens comes first


def test_each_kind_is_told_once(absorbed: tuple[dict[str, Any], str]) -> None:
    made, log = absorbed
    told = re.findall(r"^W \S+\] (.*) \(TRIREME_LIBRARY_DRIFT=0 turns this off\)$", log, re.MULTILINE)
    beginnings = [
        "TRANSFORMERS_CACHE",
        "'models--someone--tiny-model' is in ",
        "the model passed an empty access token",
        "use_auth_token",
        "device_map='auto' needs",
        "LlamaForCausalLM was loaded in float16, and TRIREME_CPU_FLOAT16 says float32: it computes in float32",
        "a prompt of ",
    ]
    if made["release"] >= 5:
        beginnings += ["this release of transformers has no tokenizer." + name for name in ("encode", "batch_encode")]
    else:
        beginnings.append("this release of transformers would ignore max_length=15")
    for beginning in beginnings:
        assert len([text for text in told if text.startswith(beginning)]) == 1, beginning
    assert len(told) == len(beginnings)
