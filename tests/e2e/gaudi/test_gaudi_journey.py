"""Gaudi's guide, word for word, with tiny models: files written for an HPU, and the portable templates."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from gaudi_server import GaudiServer, copy_original, copy_template

pytestmark = pytest.mark.timeout(400)
TABLE = """+--------+---------+--------+
| Model  | Version | Status |
+--------+---------+--------+
| llama2 | 1       | READY  |
| qwen2  | 1       | READY  |
+--------+---------+--------+"""


def answer_block(name: str) -> str:
    """What the client prints for a model that answers."""
    return (
        rf"----- Processing: model {name} ----- \n"
        rf"-----Stats: model {name} ----- \n"
        r"http client out: <tritonclient\.http\._requested_output\.InferRequestedOutput object at 0x\w+>\n"
        r"Output: \[b['\"]I am [a-z].*\n? b['\"]you are [a-z].*\]\n"
        r"Time taken: \d+\.\d+\n"
    )


def missing_block(name: str) -> str:
    return rf"----- Processing: model {name} ----- \nModel {name} not found! skipping: .*'{name}' is not found\n"


def test_files_written_for_gaudi_run_unchanged(tmp_path: Path) -> None:
    (tmp_path / "model_repository").mkdir()
    copy_original(tmp_path, "qwen2")
    with GaudiServer(tmp_path, "--devices=cpu", is_typed=True) as server:
        server.wait_until_listening()
        assert server.log.index("Initialize finished") < server.log.index("Started HTTPService")
        assert server.log.count("in place of an HPU") == 1
        status, headers, body = server.ask("GET", "/v2/health/ready")
        assert (status, headers["Content-Length"], headers["Content-Type"], body) == (200, "0", "text/plain", b"")
        done = server.ask_client("qwen2")
        assert re.fullmatch(answer_block("qwen2"), done.stdout), done.stdout + done.stderr
        assert done.returncode == 0
        assert server.interrupt() == 0
    copy_original(tmp_path, "llama2")
    with GaudiServer(tmp_path, "--devices=cpu") as server:  # the same command once more
        ask_for_both(server)
        assert server.interrupt() == 0
    assert server.log.count("in place of an HPU") == 2
    for name, printed in (("qwen2", "debug============="), ("llama2", "other utils=============")):
        assert f"[{name}_0] {printed} torch.float32" in server.log  # each by its own utils, which replaced print
        assert f"[{name}_0] prompt test:" in server.log
        assert f"[{name}_0] Cleaning up..." in server.log
    assert "device: hpu, n_hpu: 0, bf16: False" in server.log


def test_templates_walk_the_same_way(tmp_path: Path) -> None:
    copy_template(tmp_path, "qwen2")
    copy_template(tmp_path, "llama2")
    with GaudiServer(tmp_path, variables={"TRIREME_DEVICES": "hpu:2"}) as server:
        ask_for_both(server)
        answers = ask_over_grpc(server, "llama2", "I am", "you are", "This is")
        assert server.interrupt() == 0
    assert [text.split()[:2] for text in answers] == [["I", "am"], ["you", "are"], ["This", "is"]]
    assert server.log.count("in place of an HPU") == 2
    assert len(re.findall(r"loading '\S+' on hpu:0", server.log)) == 2
    assert server.log.index("warm-up: I am ") < server.log.index("Started HTTPService")


def ask_for_both(server: GaudiServer) -> None:
    """The second half of the guide: two models, and one that is not there."""
    server.wait_until_listening()
    assert TABLE in server.log
    started = re.findall(r"^I\d{4} \S+ \d+ \S+:\d+\] Started (\S+)", server.log, re.MULTILINE)
    assert started == ["GRPCInferenceService", "HTTPService", "Metrics"]
    done = server.ask_client("qwen2, llama2, doesnotexist")
    blocks = answer_block("qwen2") + answer_block("llama2") + missing_block("doesnotexist")
    assert re.fullmatch(blocks, done.stdout), done.stdout + done.stderr
    assert done.returncode == 1


def ask_over_grpc(server: GaudiServer, name: str, *prompts: str) -> list[str]:
    tensor = grpcclient.InferInput("INPUT0", [len(prompts)], "BYTES")
    tensor.set_data_from_numpy(np.array(prompts, dtype=np.object_))
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        answer = client.infer(name, [tensor], client_timeout=100)
    return [text.decode() for text in answer.as_numpy("OUTPUT0")]


def test_the_client_says_why_a_model_did_not_answer(tmp_path: Path) -> None:
    model = tmp_path / "model_repository" / "qwen2"
    copy_template(tmp_path, "qwen2")
    (model / "1" / "model.py").write_text(
        "class TritonPythonModel:\n    def execute(self, requests):\n        raise RuntimeError('out of memory')\n"
    )
    with GaudiServer(tmp_path) as server:
        server.wait_until_listening()
        done = server.ask_client("qwen2")
        assert done.returncode == 1
        assert re.fullmatch(r"-.*\nModel qwen2 failed! skipping: [^\n]*out of memory.*", done.stdout, re.DOTALL)
        server.interrupt()
        done = server.ask_client("qwen2")
    assert re.search(r"Model qwen2 failed! skipping: no answer from 127\.0\.0\.1:\d+: ", done.stdout), done.stderr


def test_without_a_gaudi_the_load_says_what_is_missing_and_how_to_go_on(tmp_path: Path) -> None:
    copy_original(tmp_path, "qwen2")
    with GaudiServer(tmp_path) as server:
        assert server.process.wait(60) == 1
    assert "UNAVAILABLE: Internal: ModuleNotFoundError: 'optimum' is not installed. On a machine with a" in server.log
    assert "install habana-torch-plugin and optimum-habana; --devices=cpu, or compat 'gaudi', serves" in server.log


def test_one_model_may_ask_for_the_cpu_in_place_of_a_gaudi(tmp_path: Path) -> None:
    copy_original(tmp_path, "qwen2")
    with (tmp_path / "model_repository" / "qwen2" / "config.pbtxt").open("a") as config:
        config.write('parameters { key: "compat" value { string_value: "gaudi" } }\n')
    with GaudiServer(tmp_path) as server:
        server.wait_until_listening()
    assert server.log.count("in place of an HPU, as --devices or compat 'gaudi' says") == 1
