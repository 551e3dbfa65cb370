"""The way of a GPT-NeoX with FasterTransformer's tensors: convert, three edits, serve, and both client programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from gptneox_workspace import MODELS, GptNeoxServer, greedy_rows, make_workspace, run
from tritonclient.utils import np_to_triton_dtype

CONVERT = "trireme convert hf-to-ft -i_g 1 -m_n gptneox -i ${WORKSPACE}/${MODEL} -o ${WORKSPACE}/FT-${MODEL}"
EDITS = (
    "sed -i -e 's@postprocessing@preprocessing@' all_models/gptneox/preprocessing/config.pbtxt",
    'sed -i -e "s@/workspace/ft/models/ft/gptneox/@${WORKSPACE}/FT-${MODEL}/1-gpu@" '
    "all_models/gptneox/fastertransformer/config.pbtxt",
    """sed -i -e 's@string_value: "2"@string_value: "1"@' all_models/gptneox/fastertransformer/config.pbtxt""",
    """sed -i -e 's@prepare_tensor("RESPONSE_INPUT_LENGTHS", output2, FLAGS.protocol)"""
    """@prepare_tensor("sequence_length", output1, FLAGS.protocol)@' ${WORKSPACE}/tools/gpt/end_to_end_test.py""",
)
PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc"])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_workspace(tmp_path_factory.mktemp("gptneox"))
    for line in (CONVERT, *EDITS):
        done = run(folder, line)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def server(workspace: Path) -> Iterator[GptNeoxServer]:
    with GptNeoxServer(workspace) as server:
        server.wait_until_listening(120)
        yield server


def client_line(server: GptNeoxServer, program: str, protocol: str, *flags: str) -> str:
    url = f"127.0.0.1:{server.ports[protocol]}"
    return " ".join(["python3", f"${{WORKSPACE}}/tools/gpt/{program}", "-i", protocol, "-u", url, *flags])


def test_the_table_has_four_models(server: GptNeoxServer) -> None:
    for model in MODELS:
        assert re.search(rf"^\| {model} +\| 1 +\| READY +\|$", server.log, re.MULTILINE)


@PROTOCOLS
def test_the_identity_test_gives_the_tokens_of_transformers(
    server: GptNeoxServer, workspace: Path, protocol: str
) -> None:
    done = run(workspace, client_line(server, "identity_test.py", protocol))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("set request\nget request\n") == 10
    assert done.stdout.count("output_ids is received\n(8, 1, 32)\n") == 10
    assert re.search(r"^\[INFO\] execution time: [\d.]+ ms$", done.stdout, re.MULTILINE)
    rows, expected = greedy_rows(workspace)
    assert (rows[0], rows[1]) == (rows[6], rows[7])
    assert rows == expected


def test_the_identity_test_searches(server: GptNeoxServer, workspace: Path) -> None:
    done = run(workspace, client_line(server, "identity_test.py", "grpc", "-beam 2"))
    assert done.returncode == 0, done.stderr
    assert "(8, 2, 32)" in done.stdout
    assert len((workspace / "triton_out").read_text().splitlines()) == 16


@PROTOCOLS
def test_the_end_to_end_test_shows_all_four(server: GptNeoxServer, workspace: Path, protocol: str) -> None:
    done = run(workspace, client_line(server, "end_to_end_test.py", protocol, "--return_log_probs"))
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^\S+ \S+ end_to_end_test:\d+ \[INFO\] =+After (\w+)=+$", done.stderr, re.MULTILINE)
    assert found == ["preprocessing", "fastertransformer", "postprocessing", "ensemble"]
    assert "[ERROR]" not in done.stderr
    assert "RESPONSE_INPUT_LENGTHS: None" in done.stderr
    assert "Hawks" not in done.stderr.split("After ensemble")[1].split("\n")[1].replace("The Hawks have", "")


def test_the_end_to_end_test_ends_with_an_error_where_nobody_answers(workspace: Path) -> None:
    done = run(workspace, "python3 ${WORKSPACE}/tools/gpt/end_to_end_test.py -u 127.0.0.1:9")
    assert done.returncode == 1
    assert "[ERROR]" in done.stderr


def ensemble(server: GptNeoxServer, protocol: str, bad: list[str], stop: list[str]) -> Any:
    """The answer to as many prompts as there are words."""
    library, count = (httpclient if protocol == "http" else grpcclient), len(bad)
    arrays = {
        "INPUT_0": np.array([["Tell me a story about ships"]] * count, np.object_),
        "INPUT_1": np.full((count, 1), 16, np.uint32),
        "INPUT_2": np.array([[words] for words in bad], np.object_),
        "INPUT_3": np.array([[words] for words in stop], np.object_),
        "end_id": np.full((count, 1), 50431, np.uint32),
        "is_return_log_probs": np.ones((count, 1), bool),
    }
    inputs = []
    for name, array in arrays.items():
        inputs.append(library.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    with library.InferenceServerClient(f"127.0.0.1:{server.ports[protocol]}") as client:
        return client.infer("ensemble", inputs)


@PROTOCOLS
def test_words_ban_and_stop_through_the_ensemble(server: GptNeoxServer, protocol: str) -> None:
    (text,) = ensemble(server, protocol, [""], [""]).as_numpy("OUTPUT_0").tolist()
    words = text.decode().split()[6:]
    assert len(words) == 16
    listed = f"{words[2]}, {words[2]}"
    result = ensemble(server, protocol, [listed, "", ""], ["", listed, ""])
    banned, stopped, free = (one.decode().split()[6:] for one in result.as_numpy("OUTPUT_0"))
    assert words[2] not in banned
    assert banned[:2] == words[:2]
    assert stopped == words[:3]
    assert free == words
    sizes = result.as_numpy("sequence_length").reshape(-1).tolist()
    assert sizes[0] - sizes[1] == 13
    each, sums = result.as_numpy("output_log_probs"), result.as_numpy("cum_log_probs")
    assert each.shape == (3, 1, 16)
    assert np.isfinite(each).all()
    np.testing.assert_allclose(sums, each.sum(axis=2), rtol=1e-5)
