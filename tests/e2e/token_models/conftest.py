"""One server with the example's ensemble, the same with TensorRT-LLM's own Python model, and a streaming model."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer
from tiny_models import cached, tiny_causal_lm

sys.path.insert(0, str(Path(__file__).parent))  # lets the tests of this folder import what they share

from whole_words import keep_words_whole

EXAMPLE = Path(__file__).parents[3] / "examples" / "falcon-7b-trt"
SESSION_MODEL = """import tensorrt_llm
from tensorrt_llm.runtime import GenerationSession, ModelConfig, SamplingConfig


class TritonPythonModel:
    def initialize(self, args):
        self.session = GenerationSession(ModelConfig(), b"", tensorrt_llm.Mapping())
"""


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("token-models")
    repository = folder / "model_repository"
    shutil.copytree(EXAMPLE, repository)
    weights = tiny_causal_lm(repository / "tensorrt_llm" / "1" / "falcon-7b", "falcon-wide")
    keep_words_whole(weights)
    _write_session_model(repository)
    _write_streaming_model(repository, weights)
    _write_later_model(repository, weights)
    _write_faster_transformer(repository, "fastertransformer", "False")
    _write_faster_transformer(repository, "ft_streaming", "True")
    with pytest.MonkeyPatch.context() as patch:  # undone at once: the session goes on with other files of tests
        patch.setenv("OMP_NUM_THREADS", "1")
        server = RunningServer(folder)
    with server:
        server.wait_until_listening(120)
        yield server


def _write_session_model(repository: Path) -> None:
    """As the original: the python backend, an engine's config.json, a path of another machine, no engine file."""
    version = repository / "session" / "1"
    tiny_causal_lm(version / "falcon-7b", "falcon-wide")
    (version / "model.py").write_text(SESSION_MODEL)
    (version / "config.json").write_text('{"builder_config": {"name": "falcon"}}')
    config = (repository / "tensorrt_llm" / "config.pbtxt").read_text()
    config = config.replace('name: "tensorrt_llm"', 'name: "session"').replace('"tensorrtllm"', '"python"')
    config = config.replace('string_value: "falcon-7b"', 'string_value: "/opt/ds/model/deployed_model/trt/session/1"')
    (repository / "session" / "config.pbtxt").write_text(config)


def _write_streaming_model(repository: Path, weights: Path) -> None:
    (repository / "streaming" / "1").mkdir(parents=True)
    (repository / "streaming" / "config.pbtxt").write_text(
        'backend: "tensorrt_llm" max_batch_size: 8 model_transaction_policy { decoupled: True }\n'
        f'parameters {{ key: "gpt_model_path" value: {{ string_value: "{weights}" }} }}\n'
        'parameters { key: "max_num_sequences" value: { string_value: "${max_num_sequences}" } }\n'
    )


def _write_later_model(repository: Path, weights: Path) -> None:
    """As later releases have it: a Python model that does what their backend does, with other names for some inputs."""
    version = repository / "later" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text("import tensorrt_llm.bindings.executor as executor\n")
    whole = ("input_lengths", "request_output_len", "end_id", "runtime_top_k", "min_tokens", "num_return_sequences")
    whole += ("beam_width",)
    inputs = [("input_ids", "INT32", "-1"), ("seed", "UINT64", "1"), *((name, "INT32", "1") for name in whole)]
    inputs += [(name, "BOOL", "1") for name in ("streaming", "stop", "return_num_input_tokens")]
    outputs = [("output_ids", "-1, -1"), ("sequence_length", "-1"), ("batch_index", "1"), ("sequence_index", "1")]
    declared = [
        f'input {{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] optional: true }}'
        for name, kind, dims in inputs
    ]
    declared += [f'output {{ name: "{name}" data_type: TYPE_INT32 dims: [ {dims} ] }}' for name, dims in outputs]
    (repository / "later" / "config.pbtxt").write_text(
        'backend: "python" max_batch_size: 8 model_transaction_policy { decoupled: True }\n'
        f'parameters {{ key: "gpt_model_path" value: {{ string_value: "{weights}" }} }}\n'
        'parameters { key: "exclude_input_in_output" value: { string_value: "True" } }\n'
        'parameters { key: "max_beam_width" value: { string_value: "2" } }\n'
        'parameters { key: "max_tokens_in_paged_kv_cache" value: { string_value: "1024" } }\n'
        'output { name: "num_input_tokens" data_type: TYPE_INT32 dims: [ 1 ] }\n' + "\n".join(declared)
    )


def _write_faster_transformer(repository: Path, name: str, decoupled: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(
        'backend: "fastertransformer" max_batch_size: 1024 default_model_filename: "gptneox_20b"\n'
        f"model_transaction_policy {{ decoupled: {decoupled} }} instance_group [ {{ count: 1 kind: KIND_CPU }} ]\n"
        'parameters { key: "tensor_para_size" value: { string_value: "2" } }\n'
        'parameters { key: "data_type" value: { string_value: "fp16" } }\n'
        f'parameters {{ key: "model_checkpoint_path" value: {{ string_value: "{cached("gptneox")}" }} }}\n'
    )
