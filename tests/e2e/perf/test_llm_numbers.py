"""`trireme perf llm` of models whose answers are numbers: embeddings, and rankings of passages."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from other_services import ranking_service
from running_server import RunningServer, write_model

VECTORS = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        texts = [pb_utils.get_input_tensor_by_name(one, "text").as_numpy().ravel() for one in requests]
        vectors = [np.array([[len(text), 1, 2] for text in batch], np.float32) for batch in texts]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("embedding", vector)]) for vector in vectors]
"""
VECTORS_CONFIG = """backend: "python"
max_batch_size: 8
input [{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "embedding" data_type: TYPE_FP32 dims: [ 3 ] }]
"""


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("vectors")
    write_model(folder, "vectors", VECTORS, VECTORS_CONFIG)
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running


def perf_llm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trireme", "perf", "llm", *words, "--artifact-dir", "out"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def written(folder: Path, name: str) -> Any:
    (found,) = (folder / "out").glob(f"*/{name}")
    return json.loads(found.read_text())


def test_embeddings_are_measured_by_request(vectors: RunningServer, tmp_path: Path) -> None:
    words = ["-m", "vectors", "--endpoint-type", "embeddings", "-u", f"127.0.0.1:{vectors.ports['http']}"]
    words += ["--batch-size-text", "3", "--isl", "12", "--request-count", "20", "--concurrency", "2"]
    run = perf_llm(tmp_path, *words, "--extra-inputs", "encoding_format:float", "--goodput", "request_latency:60000")
    assert run.returncode == 0, run.stderr
    assert run.stdout.lstrip().startswith("Embeddings Metrics\n")
    titles = [line.split("│")[1].strip() for line in run.stdout.splitlines() if line.startswith("│")]
    assert titles == [
        "Request Latency (ms)",
        "Request Throughput (requests/sec)",
        "Request Count (count)",
        "Request Goodput (requests/sec)",
    ]
    document = written(tmp_path, "profile_export_genai_perf.json")
    assert document["request_count"]["avg"] == 20
    assert document["request_goodput"]["avg"] == pytest.approx(document["request_throughput"]["avg"])
    assert 0 < document["request_latency"]["min"] <= document["request_latency"]["p50"]
    assert "output_token_throughput" not in document
    (table,) = (tmp_path / "out").glob("*/profile_export_genai_perf.csv")
    rows = list(csv.reader(table.read_text().splitlines()))
    assert [row[0] for row in rows if row][:2] == ["Metric", "Request Latency (ms)"]
    sent = [entry["payload"][0] for entry in written(tmp_path, "inputs.json")["data"]]
    assert len(sent) == 100
    assert {(body["model"], len(body["input"]), body["encoding_format"]) for body in sent} == {("vectors", 3, "float")}
    assert {len(text.split()) for body in sent for text in body["input"]} == {12}
    (experiment,) = written(tmp_path, "profile_export.json")["experiments"]
    answer = json.loads(experiment["requests"][0]["response_outputs"][0]["response"])
    first = json.loads(experiment["requests"][0]["request_inputs"]["payload"])["input"]
    assert [entry["embedding"][0] for entry in answer["data"]] == [len(text) for text in first]


def test_texts_for_embeddings_come_from_a_file(vectors: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n')
    words = ["-m", "vectors", "--service-kind", "openai", "--endpoint-type", "embeddings", "--input-file"]
    words += ["texts.jsonl", "-u", f"127.0.0.1:{vectors.ports['http']}"]
    assert perf_llm(tmp_path, *words, "--request-count", "4").returncode == 0
    sent = [entry["payload"][0]["input"] for entry in written(tmp_path, "inputs.json")["data"]]
    assert sent == [["one"], ["two"], ["three"]]
    run = perf_llm(tmp_path, *words, "-b", "4")
    assert run.returncode == 99
    assert "--batch-size-text 4: 'texts.jsonl' has only 3 texts" in run.stderr


def test_a_model_that_makes_no_embeddings_is_told(vectors: RunningServer, tmp_path: Path) -> None:
    place = f"127.0.0.1:{vectors.ports['http']}"
    run = perf_llm(tmp_path, "-m", "nobody", "--endpoint-type", "embeddings", "-u", place)
    assert run.returncode == 99
    assert "No answer with embeddings came back: " in run.stderr
    assert "nobody" in run.stderr


def test_rankings_are_asked_for_in_the_form_of_the_original(tmp_path: Path) -> None:
    folder = tmp_path / "rankings"
    folder.mkdir()
    (folder / "queries.jsonl").write_text('{"text": "Who?"}\n{"text": "Where?"}\n{"text": "Too many"}\n')
    (folder / "passages.jsonl").write_text('{"text": "She."}\n{"text": "There."}\n')
    seen: list[tuple[str, Any]] = []
    with ranking_service(seen) as url:
        words = ["-m", "ranker", "--endpoint-type", "rankings", "-u", url, "--input-file", "rankings"]
        run = perf_llm(tmp_path, *words, "--request-count", "4")
    assert run.returncode == 0, run.stderr
    assert run.stdout.lstrip().startswith("Rankings Metrics\n")
    bodies = [
        {"query": {"text": "Who?"}, "passages": [{"text": "She."}], "model": "ranker"},
        {"query": {"text": "Where?"}, "passages": [{"text": "There."}], "model": "ranker"},
    ]
    assert seen == [("/v1/ranking", body) for body in bodies * 2]


def test_rankings_of_text_embeddings_inference_have_its_form(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []
    with ranking_service(seen) as url:
        words = ["-m", "ranker", "--service-kind", "openai", "--endpoint-type", "rankings", "--endpoint", "rerank"]
        words += ["--input-file", "synthetic:queries,passages", "--extra-inputs", "rankings:tei", "-u", url]
        run = perf_llm(
            tmp_path, *words, "--synthetic-input-tokens-mean", "5", "--batch-size-text", "2", "--request-count", "3"
        )
    assert run.returncode == 0, run.stderr
    assert [path for path, _ in seen] == ["/rerank"] * 3
    for _, body in seen:
        assert sorted(body) == ["query", "texts"]
        assert [len(text.split()) for text in (body["query"], *body["texts"])] == [5, 5, 5]


def test_answers_that_rank_nothing_do_not_count(tmp_path: Path) -> None:
    seen: list[tuple[str, Any]] = []
    with ranking_service(seen, answers_junk_after=3) as url:
        words = ["-m", "ranker", "--endpoint-type", "rankings", "-u", url, "--isl", "4", "--request-count", "5"]
        run = perf_llm(tmp_path, *words)
    assert run.returncode == 0, run.stderr
    assert "2 of 5 answers had no rankings, and do not count.\n" in run.stderr
    assert written(tmp_path, "profile_export_genai_perf.json")["request_count"]["avg"] == 3


def test_a_folder_without_passages_is_told(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"text": "Who?"}\n')
    run = perf_llm(tmp_path, "-m", "ranker", "--endpoint-type", "rankings", "--input-file", ".")
    assert run.returncode == 99
    assert "'.' has no passages.jsonl" in run.stderr
