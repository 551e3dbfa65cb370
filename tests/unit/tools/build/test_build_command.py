"""The flags of `trireme build`, ours and TensorRT-LLM's, and its table."""

from __future__ import annotations

import resource
import shutil
import sys
from pathlib import Path

import pytest

from trireme.llm.models.engine_folder.description import EngineDescription
from trireme.tools.build.arguments import parse_arguments, without_meaning
from trireme.tools.build.run import Bars, report, run

SHIPPED = Path(__file__).parents[4] / "examples" / "model_repository" / "scribe" / "1"
FALCON_BUILD = (
    "--model_dir falcon/7b-instruct --dtype bfloat16 --use_gemm_plugin bfloat16 --remove_input_padding "
    "--use_gpt_attention_plugin bfloat16 --enable_context_fmha --output_dir falcon/7b/trt_engines/bf16/1-gpu/ "
    "--world_size 1"
)
FALCON_QUANTIZE = "--model_dir /model --dtype float16 --qformat fp8 --export_path quantized_fp8 --calib_size 16"


def test_the_line_that_builds_an_engine_is_understood() -> None:
    given = parse_arguments(FALCON_BUILD.split())
    assert (given.model, given.output) == (Path("falcon/7b-instruct"), Path("falcon/7b/trt_engines/bf16/1-gpu"))
    assert (given.dtype, given.quantize, given.tensor_parallel) == ("bfloat16", "none", 1)
    named = [sentence.split()[0] for sentence in without_meaning(given)]
    assert sorted(named) == [
        "--enable_context_fmha",
        "--remove_input_padding",
        "--use_gemm_plugin",
        "--use_gpt_attention_plugin",
    ]


def test_the_line_that_builds_a_large_engine_of_eight_bits_is_understood() -> None:
    line = (
        "--model_dir falcon/180b --quantized_fp8_model_path q.npz --dtype float16 --output_dir o --enable_fp8 "
        "--fp8_kv_cache --strongly_typed --tp_size 4 --pp_size 2 --world_size 8 --load_by_shard --parallel_build"
    )
    given = parse_arguments(line.split())
    assert (given.quantize, given.kv_cache_dtype, given.tensor_parallel) == ("fp8", "fp8", 4)
    assert "--pp_size has no meaning here: all layers are in one stage" in without_meaning(given)
    assert parse_arguments(["--model", "m", "--output", "o", "--world_size", "2"]).tensor_parallel == 2


def test_what_asks_for_other_bits_than_there_are_is_named() -> None:
    """convert_checkpoint.py's and trtllm-build's words."""
    line = (
        "--model_dir m --output_dir o --int8_kv_cache --smoothquant 0.5 --per_token --per_channel --lora_plugin float16"
    )
    given = parse_arguments(line.split())
    assert (given.quantize, given.kv_cache_dtype) == ("none", "auto")
    said = without_meaning(given)
    assert len(said) == 5
    assert any(one.startswith("--int8_kv_cache") and one.endswith("--kv-cache-dtype fp8") for one in said)
    assert "--lora_plugin has no meaning here: name the adapters where the model is served: adapters" in said


def test_folder_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--model", str(tmp_path / "nothing"), "--output", str(tmp_path / "engine")]) == 1
    assert f"there is no folder {tmp_path / 'nothing'}; give the one that has the" in capsys.readouterr().err


def test_the_version_is_named_where_the_folder_around_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "scribe"
    for name in ("2", "10", "configs", "11"):
        (model / name).mkdir(parents=True)
    for name in ("2", "10", "configs"):
        shutil.copy(SHIPPED / "config.json", model / name)
    assert run(["--model", str(model), "--output", str(tmp_path / "engine")]) == 1
    told = capsys.readouterr().err.rstrip()
    assert told.endswith(f": it is a model's folder around its versions; give {model / '10'}")


def test_the_line_that_quantizes_is_understood() -> None:
    given = parse_arguments(FALCON_QUANTIZE.split())
    assert (given.quantize, given.calibration_size, given.output) == ("fp8", 16, Path("quantized_fp8"))
    assert without_meaning(given) == []


@pytest.mark.parametrize(
    ("words", "method"),
    [
        ("--quantize int4", "int4"),
        ("--qformat int4_awq", "awq"),
        ("--qformat full_prec", "none"),
        ("--use_weight_only", "int8"),
        ("--enable_fp8", "fp8"),
        ("--use_weight_only --weight_only_precision int4", "int4"),
        ("--use_weight_only --weight_only_precision int4_awq", "awq"),
        ("--use_weight_only --weight_only_precision int4_gptq --per_group", "gptq"),
        ("", "none"),
    ],
)
def test_methods_have_names_of_both(words: str, method: str) -> None:
    assert parse_arguments(["--model", "m", "--output", "o", *words.split()]).quantize == method


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--quantize int3",
            "'int3' is not a quantization; known are none, fp8, int8, int4, awq, gptq, and TensorRT-LLM's full_prec, "
            "int8_wo, int4_wo, int4_awq, int4_gptq",
        ),
        (
            "--qformat int8_sq",
            "there is no 'int8_sq': activations are not rounded here; take int8 in its place (known are none,",
        ),
        ("--calibration-size 0", "must be at least 1, found 0"),
        ("--calib_size many", "--calib_size: must be a whole number, found 'many'"),
        ("--tp_size 1.5", "--tp_size: must be a whole number, found '1.5'"),
        ("--dtype int8", "invalid choice: 'int8'"),
    ],
)
def test_wrong_values_are_named(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--model", "m", "--output", "o", *words.split()])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("words", "cache"), [("", "auto"), ("--kv-cache-dtype fp8", "fp8"), ("--fp8_kv_cache", "fp8")])
def test_the_type_of_the_cache_has_names_of_both(words: str, cache: str) -> None:
    assert parse_arguments(["--model", "m", "--output", "o", *words.split()]).kv_cache_dtype == cache


@pytest.mark.parametrize("files", [{}, {"config.json": "{}"}, {"config.json": "not JSON"}])
def test_a_folder_without_a_model_is_told(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    for name, text in files.items():
        (tmp_path / "model" / name).write_text(text)
    assert run(["--model", str(tmp_path / "model"), "--output", str(tmp_path / "engine")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("trireme build: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "engine").exists()


@pytest.mark.parametrize("method", ["int4", "awq"])
@pytest.mark.parametrize("flag", ["--calibrate", "--perplexity"])
def test_a_text_that_is_not_there_is_told_at_once(
    method: str, flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", str(tmp_path), "--output", str(tmp_path / "engine"), "--quantize", method, "--no-perplexity"]
    assert run([*words, flag, str(tmp_path / "missing.txt")]) == 1
    assert f"trireme build: there is no file {tmp_path / 'missing.txt'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--quantize int4",
            ["--calibrate: int4 is computed without calibration; the perplexity alone is measured with "],
        ),
        (
            "--quantize int8 --no-perplexity",
            ["--calibrate: int8 is computed without calibration; the text is not used"],
        ),
        (
            "--quantize fp8 --perplexity b.txt",
            ["--calibrate: fp8 is computed without calibration; the text is not used"],
        ),
        ("--quantize awq --no-perplexity", []),
    ],
)
def test_a_text_for_a_method_without_calibration_is_named(words: str, said: list[str]) -> None:
    given = parse_arguments(["--model", "m", "--output", "o", "--calibrate", "a.txt", *words.split()])
    found = without_meaning(given)
    assert len(found) == len(said)
    assert all(sentence.startswith(begin) for sentence, begin in zip(found, said, strict=True))


@pytest.mark.parametrize("is_relative", [False, True])
def test_an_error_names_the_folder_that_was_asked_for(
    is_relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process may write no file of more than a thousand bytes, as on a disk that is full."""
    monkeypatch.chdir(tmp_path)
    output = Path("engine") if is_relative else tmp_path / "engine"
    _, most = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
    try:
        assert run(["--model", str(SHIPPED), "--output", str(output), "--no-perplexity"]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith(f"trireme build: {output}")
    assert ".engine-" not in said
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_told_with_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    output = tmp_path / "file" / "engine"
    assert run(["--model", str(SHIPPED), "--output", str(output), "--no-perplexity"]) == 1
    assert capsys.readouterr().err.startswith(f"trireme build: {output}: ")


@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_a_folder_that_takes_no_texts_is_told(
    has_tokenizer: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, output = Path(shutil.copytree(SHIPPED, tmp_path / "model")), tmp_path / "engine"
    if not has_tokenizer:
        (model / "tokenizer.json").unlink()
    assert run(["--model", str(model), "--output", str(output), "--no-perplexity"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert (last == f"Wrote {output}; serve it like a model's folder.") is has_tokenizer
    told = f"can be neither served with texts nor chatted with as it is: {output} has no tokenizer: neither tokenizer."
    assert (told in last) is not has_tokenizer


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_pytorch_that_is_missing_is_told_before_anything_is_read(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # which find_spec reads as missing
    assert run(["--model", str(SHIPPED), "--output", str(tmp_path / "engine"), "--quantize", method]) == 1
    assert capsys.readouterr().err == (
        f"trireme build: {method} needs PyTorch, which is not installed: pip install torch, or pip install -c "
        "constraints.txt '.[transformers]' in the folder of the clone, which brings it; int4 is computed without\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_table_has_sizes_and_perplexities() -> None:
    measured = {"text": "some.txt", "tokens": 900, "before": 10.0, "after": 10.25}
    text = report(
        EngineDescription(
            "awq", 9, 25 << 20, "a/b", 100 << 20, {"int4": 8, "fp8": 1}, calibration="more.txt", perplexity=measured
        )
    )
    assert text.splitlines() == [
        "                  before       after      change",
        "weights        100.0 MiB    25.0 MiB   25% of it",
        "perplexity        10.000      10.250      +2.50%",
        "matrices: 1 in fp8, 8 in int4; quantization: awq",
        "measured on 900 tokens of some.txt",
        "calibrated with more.txt",
    ]


def test_a_text_that_was_calibrated_with_says_little() -> None:
    measured = {"text": "some.txt", "tokens": 900, "before": 10.0, "after": 9.5}
    told = [
        report(EngineDescription("awq", 9, 25 << 20, "a/b", 100 << 20, {}, calibration=text, perplexity=measured))
        for text in ("some.txt", "more.txt", "")
    ]
    assert ["--perplexity FILE" in text for text in told] == [True, False, False]


@pytest.mark.parametrize(("kind", "word"), [(OSError, "failed"), (KeyboardInterrupt, "interrupted")])
def test_a_step_that_does_not_end_well_is_not_called_done(
    kind: type[BaseException], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind), Bars() as bars:
        bars.tell("reading", 0, 100)
        bars.tell("writing", 0, 100)
        raise kind
    said = capsys.readouterr().err
    assert "reading: done after" in said
    assert f"writing: {word} after" in said
    assert "writing: done" not in said


def test_the_type_of_logits_is_named() -> None:
    (sentence,) = without_meaning(parse_arguments(["--model", "m", "--output", "o", "--logits_dtype", "float32"]))
    assert sentence.startswith("--logits_dtype has no meaning here: ")
