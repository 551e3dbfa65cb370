"""Language models under load: flags, prompts, answers taken apart, and the numbers of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import orjson
import pytest

from trireme import __version__
from trireme.core.elements import encode_bytes
from trireme.proto import service_pb2
from trireme.tools.perf.command import run_llm_command
from trireme.tools.perf.errors import PerfError, UsageError
from trireme.tools.perf.llm.flags import make_parser, read_options
from trireme.tools.perf.llm.metrics import at_once_note, compute, statistics
from trireme.tools.perf.llm.options import LlmOptions, PromptOptions
from trireme.tools.perf.llm.pieces import GeneratedText, read_answer
from trireme.tools.perf.llm.prompts import Prompt, fitting_length, make_prompts
from trireme.tools.perf.llm.report import artifact_folder, csv_text, json_document, table_text, write_files
from trireme.tools.perf.llm.requests import body_of, values_of
from trireme.tools.perf.llm.run import run
from trireme.tools.perf.llm.tokens import token_counter
from trireme.tools.perf.load.records import RequestDetail
from trireme.tools.perf.wire import answers

MS = 1_000_000
EXAMPLES = Path(__file__).parents[5] / "examples" / "model_repository"


def options(*words: str) -> LlmOptions:
    return read_options(make_parser("genai-perf"), ["-m", "model", *words])


class HalfWords:
    """A counter for which a word is two tokens."""

    def count(self, text: str) -> int:
        return 2 * len(text.split())


@pytest.mark.parametrize("command", ["analyze", "config", "template", "create-template", "process-export-files"])
@pytest.mark.parametrize("before", [[], ["profile"]], ids=["alone", "behind profile"])
def test_other_commands_of_the_original_say_what_there_is_instead(
    command: str, before: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_llm_command("genai-perf", [*before, command, "-m", "model"]) == 99
    assert f"Error: '{command}' is not supported here: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("refusal", "length"),
    [
        (
            "the prompt has 696 tokens, and with an answer is longer than the model's context length: the model takes "
            "512; shorten it",
            202,
        ),
        ("it is broken", None),
    ],
)
def test_prompts_that_a_model_refuses_as_too_long_can_be_made_shorter(refusal: str, length: int | None) -> None:
    assert fitting_length(refusal, 550) == length


def test_the_endpoint_follows_the_kind_of_service() -> None:
    assert (options().endpoint_type, options().url) == ("kserve", "localhost:8001")
    assert options("--service-kind", "openai").endpoint_type == "chat"
    assert options("--endpoint-type", "completions").url == "localhost:8000"
    assert options("--concurrency", "20").request_count == 40
    assert options("--request-rate", "2.5").concurrency is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--endpoint-type", "nvclip"), "is not supported"),
        (("--endpoint-type", "dynamic_grpc"), "'trireme perf --service-kind dynamic_grpc --grpc-method METHOD"),
        (("--endpoint-type", "embeddings", "--streaming"), "--streaming is not for --endpoint-type embeddings"),
        (("--endpoint-type", "rankings", "--service-kind", "triton"), "does not belong to --service-kind triton"),
        (("--endpoint-type", "chat", "-b", "2"), "--batch-size-text is of --endpoint-type embeddings and rankings"),
        (("--endpoint-type", "embeddings", "-b", "0"), "Failed to parse --batch-size-text"),
        (("--endpoint-type", "chat", "--input-file", "synthetic:prompts"), "valid file path"),
        (("--service-kind", "openai", "--endpoint-type", "kserve"), "does not belong to"),
        (("--concurrency", "1", "--request-rate", "1"), "exclude each other"),
        (("--goodput", "speed:3"), "--goodput knows"),
        (("--goodput", "request_latency:9", "time_to_first_token:3"), "piece by piece: --streaming"),
        (("--goodput", "fast"), "a colon and its limit, not 'fast'"),
        (("--fixed-schedule",), "trireme perf --service-kind openai --fixed-schedule"),
        (("--output-tokens-mean-deterministic",), "--output-tokens-mean N"),
        (("--extra-inputs", '{"a":' + "[" * 100_000), "--extra-inputs is no JSON"),
        (("--extra-inputs", "x"), "a name, a colon and a value"),
        (("-m", "second"), "one model is measured at a time, not"),
        (("--input-file", "/nowhere"), "valid file path"),
    ],
)
def test_what_cannot_be_run_is_refused(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        options(*words)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("flag", ["-s", "-p", "-v"])
def test_flags_of_the_original_that_have_no_effect_are_told(flag: str) -> None:
    given = options(flag, "999")
    assert [note for note in given.notes if "has no effect" in note]
    assert given.prompts.seed == 0, "-s is no seed in the original"


@pytest.mark.parametrize("counter", [None, HalfWords()])
def test_prompts_have_the_tokens_that_were_asked_for(counter: HalfWords | None) -> None:
    prompts = make_prompts(PromptOptions(input_tokens_mean=40, output_tokens_mean=7, count=5), counter)
    assert [prompt.tokens for prompt in prompts] == [40] * 5
    assert {prompt.max_tokens for prompt in prompts} == {7}
    assert len({prompt.text for prompt in prompts}) == 5
    varied = make_prompts(PromptOptions(input_tokens_mean=40, input_tokens_deviation=5, count=20), None)
    assert len({prompt.tokens for prompt in varied}) > 3


def test_a_folder_that_cannot_be_made_is_told_before_the_load(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PerfError, match=r"the results cannot be written to '.*': Not a directory"):
        run(options("--artifact-dir", str(tmp_path / "file" / "below")))


def test_prompts_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    path.write_text('{"text": "one two"}\n\nthree\n')
    assert [p.text for p in make_prompts(PromptOptions(input_file=str(path)), None)] == ["one two", "three"]
    path.write_text('{"other": 1}\n')
    with pytest.raises(PerfError, match="line 1: there is no field"):
        make_prompts(PromptOptions(input_file=str(path)), None)


def test_bodies_fit_their_endpoints() -> None:
    prompt = Prompt("hi", 1, 5)
    chat = body_of(options("--endpoint-type", "chat", "--streaming", "--extra-inputs", "top_k:3"), prompt)
    assert chat == {
        "model": "model",
        "messages": [{"role": "user", "content": "hi"}],
        "stream_options": {"include_usage": True},
        "stream": True,
        "max_tokens": 5,
        "top_k": 3,
    }
    assert body_of(options("--endpoint-type", "completions"), prompt) == {
        "model": "model",
        "prompt": "hi",
        "max_tokens": 5,
    }
    assert body_of(options("--endpoint-type", "generate"), prompt) == {"text_input": "hi", "max_tokens": 5}
    tensors = values_of(options("--streaming"), prompt)
    assert json.loads(tensors["sampling_parameters"]) == {"max_tokens": "5"}
    assert (tensors["max_tokens"], tensors["stream"]) == (5, True)


def test_events_are_taken_apart() -> None:
    def event(text: str | None, usage: dict[str, int] | None = None) -> bytes:
        choices = [] if text is None else [{"delta": {"content": text}}]
        return orjson.dumps({"choices": choices, "usage": usage})

    outputs = (
        event(""),
        event("Hel"),
        event("lo"),
        event(None, {"prompt_tokens": 4, "completion_tokens": 2}),
        b"[DONE]",
    )
    answer = read_answer(RequestDetail(3, 0, 100, (110, 120, 130, 140, 150), outputs), answers.EVENTS)
    assert (answer.times_ns, answer.texts) == ((120, 130), ("Hel", "lo"))
    assert (answer.prompt_tokens, answer.completion_tokens, answer.content) == (4, 2, 3)


def test_streams_of_tensors_are_taken_apart() -> None:
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.outputs.add(name="text_output", datatype="BYTES", shape=[1])
    message.infer_response.raw_output_contents.append(encode_bytes(["word"]))
    empty = service_pb2.ModelStreamInferResponse()
    outputs = (message.SerializeToString(), empty.SerializeToString())
    answer = read_answer(RequestDetail(0, 0, 0, (10, 20), outputs), answers.GRPC_STREAM)
    assert (answer.times_ns, answer.texts, answer.completion_tokens) == ((10,), ("word",), None)


def test_the_numbers_of_a_language_model() -> None:
    texts = [
        GeneratedText(0, (100 * MS, 120 * MS, 200 * MS), ("a", "b", "c"), 7, 6, 0),
        GeneratedText(0, (300 * MS, 400 * MS), ("a", "b"), None, None, 0),
    ]
    limits = {"time_to_first_token": 150.0, "request_latency": 250.0}
    metrics = compute(texts, [Prompt("x y", 2, None)], None, is_streaming=True, goodput=limits)
    assert metrics.values["time_to_first_token"] == [100, 300]
    assert metrics.values["time_to_second_token"] == [20, 100]
    assert metrics.values["inter_token_latency"] == [20, 100]
    assert metrics.values["output_token_throughput_per_user"] == [50, 10]
    assert metrics.values["output_sequence_length"] == [6, 2]
    assert metrics.values["input_sequence_length"] == [7, 2]
    assert metrics.totals["output_token_throughput"] == pytest.approx(8 / 0.4)
    assert metrics.totals["request_throughput"] == pytest.approx(5)
    assert metrics.totals["request_goodput"] == pytest.approx(2.5)


def test_a_stream_that_comes_as_one_counts_in_the_latency_between_tokens_and_is_told() -> None:
    texts = [
        GeneratedText(0, (100 * MS, 100 * MS), ("a", "b"), None, None, 0),
        GeneratedText(0, (300 * MS, 400 * MS), ("a", "b"), None, None, 0),
    ]
    metrics = compute(texts, [Prompt("x y", 2, None)], None, is_streaming=True, goodput={})
    assert metrics.values["inter_token_latency"] == [0, 100]
    assert metrics.values["output_token_throughput_per_user"] == [10]
    assert at_once_note(metrics).startswith("1 of 2 streams brought all of their tokens at once: ")
    assert at_once_note(compute(texts[1:], [Prompt("x", 1, None)], None, is_streaming=True, goodput={})) == ""


def test_results_are_a_table_csv_and_json() -> None:
    texts = [GeneratedText(0, (100 * MS, 200 * MS), ("a", "b"), None, 2, 0)]
    asked = options("--streaming", "-H", "Authorization:secret")
    metrics = compute(texts, [Prompt("x", 1, None)], None, is_streaming=True, goodput={})
    table = table_text(metrics, True).splitlines()
    assert len({len(line) for line in table[1:]}) == 1
    assert "│ Time To First Token (ms) │ 100.00 │" in " ".join(" ".join(table).split())
    lines = csv_text(metrics, True).splitlines()
    assert lines[0] == "Metric,avg,min,max,p99,p95,p90,p75,p50,p25"
    assert "Request Throughput (requests/sec),5.00" in lines
    document = json_document(metrics, asked)
    assert document["request_latency"]["unit"] == "ms"
    assert document["request_latency"]["avg"] == 200
    assert "secret" not in json.dumps(document)
    assert "Time To First Token" not in table_text(metrics, False)
    assert statistics([1, 2, 3])["p50"] == 2


ORIGINAL = (
    "--service-kind triton --backend tensorrtllm --num-prompts 3 --random-seed 123 --synthetic-input-tokens-mean 20 "
    "--synthetic-input-tokens-stddev 0 --output-tokens-mean 10 --output-tokens-stddev 0 "
    "--output-tokens-mean-deterministic --concurrency 1 --measurement-interval 4000 --stability-percentage 999 "
    "--profile-export-file mine.json --generate-plots"
)


def test_a_disk_that_is_full_is_told_with_the_file(tmp_path: Path) -> None:
    asked = options("--artifact-dir", str(tmp_path))
    folder = artifact_folder(asked)
    folder.mkdir()
    path = folder / "profile_export_genai_perf.json"
    path.symlink_to("/dev/full")
    metrics = compute([GeneratedText(0, (MS,), ("a",), 1, 1, 0)], [], None, is_streaming=False, goodput={})
    with pytest.raises(PerfError, match=f"^failed to write '{path}': No space left on device$"):
        write_files(metrics, asked)


@pytest.mark.parametrize("before", [[], ["profile"]], ids=["alone", "behind profile"])
def test_the_version_is_told_without_a_model(before: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_llm_command("genai-perf", [*before, "--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"genai-perf {__version__} (Trireme)\n"


def test_a_command_line_of_the_original_is_run_and_what_has_no_effect_is_told() -> None:
    found = options(*ORIGINAL.split())
    assert found.prompts.count == 3
    assert found.prompts.is_output_exact
    assert [note.split()[0] for note in found.notes] == [
        "--measurement-interval",
        "--stability-percentage",
    ]
    assert found.makes_plots
    assert options().notes == ()


@pytest.mark.parametrize("endpoint_type", ["chat", "completions", "generate"])
def test_answers_of_an_exact_length_have_a_least_one(endpoint_type: str) -> None:
    prompt = Prompt("a", 1, 10)
    exact = ("--endpoint-type", endpoint_type, "--osl", "10", "--output-tokens-mean-deterministic")
    assert body_of(options(*exact), prompt)["min_tokens"] == 10
    assert "min_tokens" not in body_of(options(*exact[:-1]), prompt)


def test_tensors_of_an_exact_length_have_a_least_one() -> None:
    values = values_of(options("--osl", "10", "--output-tokens-mean-deterministic"), Prompt("a", 1, 10))
    assert (values["min_tokens"], values["min_length"]) == (10, 10)
    assert orjson.loads(values["sampling_parameters"])["min_tokens"] == "10"


def test_a_tokenizer_is_found_by_the_name_of_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(PerfError, match=r"'maker/model' is neither"):
        token_counter("maker/model")
    snapshot = tmp_path / "models--maker--model" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    shutil.copy(next(EXAMPLES.glob("scribe/**/tokenizer.json")), snapshot)
    found = token_counter("maker/model")
    assert found is not None
    assert found.count("one two three") > 1
