"""What older model files ask of the installed transformers: by itself, with rescues, and with all that can be asked
for."""

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

from trireme.machine.cpu_arithmetic import emulates

PROGRAM = Path(__file__).with_name("older_calls.py")
SOURCE = Path(__file__).parents[3] / "src"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
RESCUED = ("encode_plus", "batch_encode_plus", "batch_encode_plus again", "use_auth_token", "device_map")
RESCUED += ("pipeline device_map", "token in header", "long prompt", "long prompt again", "generate")
"""Calls that fail in the newest release."""

TYPES = (
    "logits of float16",
    "float16 in",
    "no dictionary",
    "a layer of its type",
    "forward by itself",
    "a copy",
    "float16 from float32",
    "converted twice",
    "float16 in the files",
    "images and texts",
    "features",
)
"""Calls of models in float16 that tell the type of what they return."""
SAME = ("text of float16", "fixed cache", "back to float32", "float32 of an owner", "a part")
"""Calls of such models that give the same in whatever type they are computed."""
Outcome = tuple[dict[str, Any], str]


def outcomes(folder: Path, compat: str) -> Outcome:
    """What came of each call, and what was told on the way. The model's own cache is empty, the usual one is not."""
    own, home = folder / "own", folder / "home"
    own.mkdir()
    repository = home / "hub" / "models--someone--tiny-model"
    tiny_models.tiny_causal_lm(repository / "snapshots" / COMMIT, "llama")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    unset = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    environment |= {"TRIREME_COMPAT": compat, "TRIREME_DEVICE": "cpu"}
    command = [sys.executable, str(PROGRAM), str(tiny_models.cached("llama")), str(own), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def rescued(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return outcomes(tmp_path_factory.mktemp("rescued"), "")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return outcomes(tmp_path_factory.mktemp("changed"), "cache,device_map,float16-as-float32,lengths")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return outcomes(tmp_path_factory.mktemp("plain"), "off")


def lines(outcome: Outcome, letter: str) -> list[str]:
    return re.findall(rf"^{letter} \S+\] (.*)$", outcome[1], re.MULTILINE)


def test_every_call_of_an_older_file_works(rescued: Outcome, changed: Outcome) -> None:
    for made in (rescued[0], changed[0]):
        pair = made["token ids"]
        expected = {
            "usual cache": pair,
            "encode_plus": pair,
            "batch_encode_plus again": [1, 2],
            "use_auth_token": True,
            "device_map": "cpu",
            "pipeline device_map": "cpu",
            "token in header": None,
            "long prompt": 1,
            "long prompt again": 1,
            "new tokens win": 20,
            "generate": 1,
        }
        if made["release"] < 5 and made is rescued[0]:
            del expected["long prompt"], expected["long prompt again"]  # which are cut, and do not fail
        assert {name: made[name] for name in expected} == expected
        assert made["batch_encode_plus"][0] == pair
    assert changed[0]["short prompt"] == 15


def test_what_works_without_rescues_gives_the_same_with_them(rescued: Outcome, plain: Outcome) -> None:
    assert rescued[0].keys() == plain[0].keys()
    for name in rescued[0].keys() - set(RESCUED):
        assert rescued[0][name] == plain[0][name], name
    assert rescued[0]["dtype"] == rescued[0]["torch_dtype"] == rescued[0]["dtype by name"] == "torch.float16"


def test_on_request_a_model_of_float16_is_one_of_float32(changed: Outcome, plain: Outcome) -> None:
    made = changed[0]
    assert made["dtype"] == made["torch_dtype"] == made["dtype by name"] == made["type"] == "torch.float32"
    assert {name: made[name] for name in TYPES} == dict.fromkeys(TYPES, "float32")
    assert {name: made[name] for name in SAME} == {name: plain[0][name] for name in SAME}
    assert made["values of float16"] == pytest.approx(plain[0]["values of float16"], abs=2e-3)


def test_the_library_alone_refuses(plain: Outcome) -> None:
    made = plain[0]
    assert "requires `accelerate`" in made["device_map"]
    assert made["token in header"] == "Bearer "
    assert made["generate"].startswith("ValueError: Input length of input_ids")
    if made["release"] >= 5:
        assert made["long prompt"].startswith("ValueError: Input length of input_ids")
        assert made["batch_encode_plus"].startswith("AttributeError")
        assert made["use_auth_token"].startswith("TypeError")
    else:
        assert made["short prompt"] > 15  # its own limit of new tokens comes first
    assert lines(plain, "W") == lines(plain, "I") == []


def test_each_rescue_is_told_once_with_the_word_that_turns_it_off(rescued: Outcome) -> None:
    told = lines(rescued, "W")
    beginnings = ["the model passed an empty access token", "device_map='auto' needs", "a prompt of "]
    if rescued[0]["release"] >= 5:
        beginnings += ["this release of transformers has no tokenizer." + name for name in ("encode", "batch_encode")]
        beginnings.append("use_auth_token")
    assert all(text.endswith("(compat 'off' turns such rescues off)") for text in told)
    for beginning in beginnings:
        assert len([text for text in told if text.startswith(beginning)]) == 1, beginning
    assert len(told) == len(beginnings)


def test_what_could_be_asked_for_is_offered_once(rescued: Outcome) -> None:
    offers = ["LlamaForCausalLM was loaded in float16, "] if emulates("float16") else []
    if rescued[0]["release"] < 5:
        offers.append("this release of transformers ignores max_length=15")
    told = lines(rescued, "I")
    assert [len([text for text in told if text.startswith(offer)]) for offer in offers] == [1] * len(offers)
    assert len(told) == len(offers)


def test_each_change_is_told_once_with_the_word_that_asked_for_it(changed: Outcome) -> None:
    told = [text for text in lines(changed, "W") if "asked for by" in text]
    converted = "LlamaForCausalLM was loaded in float16, which the CPU is not to compute: it is a model of float32"
    by_word = {
        "TRANSFORMERS_CACHE": "cache",
        "'models--someone--tiny-model' is in ": "cache",
        "device_map='auto' needs": "device_map",
        converted: "float16-as-float32",
    }
    if changed[0]["release"] < 5:
        by_word["this release of transformers ignores max_length=15"] = "lengths"
    for beginning, word in by_word.items():
        (text,) = [text for text in told if text.startswith(beginning)]
        assert text.endswith(f"(asked for by compat '{word}')")
    assert len(told) == len(by_word)
