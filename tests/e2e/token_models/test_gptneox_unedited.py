"""FasterTransformer's repository of GPT-NeoX before anybody has edited it: what is told, and what it takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from gptneox_workspace import EXAMPLE, GptNeoxServer, greedy_rows, make_workspace, run


def test_what_is_missing_is_told_and_the_rest_is_served(tmp_path: Path) -> None:
    folder = make_workspace(tmp_path)
    with GptNeoxServer(folder, "--exit-on-error=false") as server:
        server.wait_until_listening()
        assert "there is no checkpoint for '/workspace/ft/models/ft/gptneox/': looked in" in server.log
        assert server.index()["fastertransformer"]["state"] == "UNAVAILABLE"
        assert server.status("/v2/models/preprocessing/ready") == 200
        assert server.status("/v2/models/ensemble/ready") == 400
        body = {"QUERY": "Hello, my name is", "REQUEST_OUTPUT_LEN": 4}
        status, _, answer = server.ask("POST", "/v2/models/preprocessing/generate", body)
        assert status == 200, answer
        assert json.loads(answer)["REQUEST_INPUT_LEN"] == len(json.loads(answer)["INPUT_ID"])


def test_a_checkpoint_of_two_ranks_in_the_versions_folder_needs_no_edit(tmp_path: Path) -> None:
    """Decoupled, so that the identity test counts a response for each of its 24 tokens."""
    folder = make_workspace(tmp_path)
    version = "${WORKSPACE}/all_models/gptneox/fastertransformer/1"
    for ranks in (1, 2):
        line = f"trireme convert hf-to-ft -i_g {ranks} -m_n gptneox -i ${{WORKSPACE}}/${{MODEL}} -o {version}"
        assert run(folder, line).returncode == 0
    config = folder / "all_models" / "gptneox" / "fastertransformer" / "config.pbtxt"
    config.write_text(config.read_text().replace("decoupled: False", "decoupled: True"))
    with GptNeoxServer(folder) as server:
        server.wait_until_listening()
        assert "/fastertransformer/1/2-gpu'" in server.log
        assert "GPTNeoXForCausalLM runs on 2 ranks" in server.log
        flags = f"-d -i grpc -u 127.0.0.1:{server.ports['grpc']}"
        done = run(folder, f"python3 ${{WORKSPACE}}/tools/gpt/identity_test.py {flags}")
        assert done.returncode == 0, done.stderr
        rows, expected = greedy_rows(folder)
        assert rows == expected
        done = run(folder, f"python3 ${{WORKSPACE}}/tools/gpt/identity_test.py {flags} -o 3 -r -b 2 -s 5")
        assert "(2, 1, 8)" in done.stdout, done.stderr


def test_the_example_is_served_with_the_model_that_its_script_makes(tmp_path: Path) -> None:
    repository = tmp_path / "all_models" / "gptneox"
    shutil.copytree(EXAMPLE, repository, ignore=shutil.ignore_patterns("*-gpu", "tiny-gptneox", "*.json"))
    for _ in range(2):  # a second time over the first
        done = run(tmp_path, "python3 all_models/gptneox/make_model.py")
        assert "has a tiny model" in done.stdout, done.stderr
    with GptNeoxServer(tmp_path) as server:
        server.wait_until_listening()
        url = f"127.0.0.1:{server.ports['http']}"
        done = run(tmp_path, f"python3 all_models/gptneox/end_to_end_test.py -u {url} -topk 4 -topp 0.9 --output-len 8")
        assert done.returncode == 0, done.stderr
        assert "After ensemble" in done.stderr
