"""The Gaudi templates on a CPU: buckets change shapes and never answers, every request gets its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import cached

from trireme.core.errors import ServingError
from trireme.testing import LoadedModel, load_model

TEMPLATES = Path(__file__).parents[4] / "examples" / "gaudi"
PROMPTS = ["I am", "How can you be so sure of that? Where is the nearest station", "", "you are", "This is"]


def copy_template(folder: Path, **parameters: str) -> Path:
    """The llama2 template with a tiny model and these parameters on top of its own."""
    model = folder / "llama2"
    (model / "1").mkdir(parents=True)
    source = TEMPLATES / "llama2"
    (model / "1" / "model.py").write_text((source / "1" / "model.py").read_text())
    lines = [line for line in (source / "config.pbtxt").read_text().splitlines() if not line.startswith("#")]
    wanted = {"model": str(cached("llama")), "device": "cpu", "max_new_tokens": "6", "do_sample": "false", **parameters}
    kept = [line for line in lines if not any(f'key: "{name}"' in line for name in wanted)]
    kept += [f'parameters {{ key: "{name}" value: {{ string_value: "{text}" }} }}' for name, text in wanted.items()]
    (model / "config.pbtxt").write_text("\n".join(kept))
    return model


def texts(*values: str) -> np.ndarray[Any, Any]:
    return np.array([value.encode() for value in values], dtype=np.object_)


def answers(model: LoadedModel, *values: str) -> list[str]:
    return [text.decode() for text in model.infer(INPUT0=texts(*values))["OUTPUT0"]]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each prompt is continued to when it is alone."""
    with load_model(copy_template(tmp_path_factory.mktemp("plain"))) as model:
        return {prompt: answers(model, prompt)[0] for prompt in PROMPTS}


def test_an_answer_is_the_prompt_and_more(plain: dict[str, str]) -> None:
    for prompt, answer in plain.items():
        assert answer.startswith(prompt)
        assert len(answer) > len(prompt)


@pytest.mark.parametrize("is_static", ["true", "false"])
def test_prompts_that_run_together_get_what_they_get_alone(
    tmp_path: Path, plain: dict[str, str], is_static: str
) -> None:
    shapes = {"static_shapes": is_static, "buckets": "8", "max_input_tokens": "24", "batch_buckets": "1,2,4"}
    with load_model(copy_template(tmp_path, **shapes)) as model:
        assert answers(model, *PROMPTS) == [plain[prompt] for prompt in PROMPTS]
        warmed = [entry.message for entry in model.logs if entry.message.startswith("warming up")]
        results = model.infer_many([{"INPUT0": texts("I am")}, {"INPUT0": texts("you are", "This is")}])
        assert [[text.decode() for text in result["OUTPUT0"]] for result in results] == [
            [plain["I am"]],
            [plain["you are"], plain["This is"]],
        ]
    expected = [f"warming up {rows} x {length} tokens" for length in (8, 24) for rows in (1, 2, 4)]
    assert warmed == (expected if is_static == "true" else [])


def test_beams_write_the_same_in_buckets(tmp_path: Path) -> None:
    beams = {"num_beams": "3", "max_input_tokens": "24"}
    with load_model(copy_template(tmp_path / "plain", **beams)) as model:
        alone = [answers(model, prompt)[0] for prompt in PROMPTS]
    with load_model(copy_template(tmp_path / "static", static_shapes="true", batch_buckets="2,8", **beams)) as model:
        assert answers(model, *PROMPTS) == alone


def test_of_a_prompt_that_is_too_long_the_end_counts(tmp_path: Path) -> None:
    with load_model(copy_template(tmp_path, max_input_tokens="2", static_shapes="true")) as model:
        (answer,) = answers(model, "you are " * 2000 + "I am")
        assert answer.lstrip().startswith("I am ")
        assert len(answer.split()) > 3


def test_a_request_that_is_no_text_fails_alone(tmp_path: Path, plain: dict[str, str]) -> None:
    with load_model(copy_template(tmp_path)) as model:
        wrong = np.array([b"\xff"], dtype=np.object_)
        bad, good = model.infer_many([{"INPUT0": wrong}, {"INPUT0": texts("I am")}])
        assert good["OUTPUT0"][0].decode() == plain["I am"]
        with pytest.raises(ServingError, match="a text must be UTF-8"):
            bad.check()
        assert model.infer(INPUT0=texts())["OUTPUT0"].shape == (0,)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"device": "neuron"}, "the device must be one of hpu, cuda, cpu, found 'neuron'"),
        ({"dtype": "int3"}, "parameter 'dtype' must be one of float32, bfloat16, float16, found 'int3'"),
        ({"buckets": "few"}, "parameter 'buckets': buckets are whole numbers"),
        ({"top_p": "much"}, "parameter 'top_p' must be a number, found 'much'"),
        ({"num_beams": "0"}, "parameter 'num_beams' of model 'llama2' must be at least 1, found 0"),
        ({"model": ""}, "does not say what to serve"),
        ({"model": "./nowhere"}, "'./nowhere' could not be loaded"),
        ({"max_new_tokens": "1024"}, "leaves no room for a prompt in the 1024 tokens"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, parameters: dict[str, str], reason: str) -> None:
    with pytest.raises(ServingError) as raised, load_model(copy_template(tmp_path, **parameters)):
        pass
    assert reason in str(raised.value)
