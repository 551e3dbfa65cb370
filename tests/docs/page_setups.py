"""What pages take for granted: models of the reader's own, a hub, the server with the examples."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from free_ports import free_ports
from local_hub import LocalHub
from page_run import ROOT, PageRun
from PIL import Image
from tiny_generating_models import generating_model
from tiny_models import cached, tiny_causal_lm

IDENTITY = """backend: "identity"
max_batch_size: 8
input [ { name: "INPUT0", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "OUTPUT0", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""


def _nothing(run: PageRun) -> None:
    pass


@dataclass(frozen=True)
class Setup:
    """One page's."""

    asks_examples: bool = False
    """It asks a server with the example models that it does not start itself."""
    prepare: Callable[[PageRun], None] = _nothing
    """Writes what the reader has already."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment."""
    hub: Mapping[str, str] = field(default_factory=dict)
    """Models of the Hub, and the tiny ones that stand in for them."""

    @contextmanager
    def surroundings(self, folder: Path) -> Iterator[dict[str, str]]:
        """The hub, where the page needs one; the variables by which it is found."""
        if not self.hub:
            yield dict(self.variables)
            return
        models = {name: _with_chats(cached(kind), folder / ".tiny" / kind) for name, kind in self.hub.items()}
        with LocalHub(models) as hub:
            yield {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / ".hub"), "HF_HUB_OFFLINE": "0"}


def _with_chats(model: Path, copy: Path) -> Path:
    """A copy of the model that writes conversations with a template, as those that are made for them do."""
    shutil.copytree(model, copy, dirs_exist_ok=True)
    (copy / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    return copy


def own_models(*names: str) -> Callable[[PageRun], None]:
    """Models of the reader's own: copies of an example under these names."""

    def prepare(run: PageRun) -> None:
        for name in names:
            shutil.copytree(ROOT / "examples/model_repository/shout", run.folder / "model_repository" / name)

    return prepare


def _backend_of_ones_own(run: PageRun) -> None:
    own_models("shout")(run)
    (run.folder / "backends/shout").mkdir(parents=True)
    shutil.copy(ROOT / "examples/model_repository/shout/1/model.py", run.folder / "backends/shout/model.py")
    (run.folder / "model_repository/loud/1").mkdir(parents=True)
    config = (ROOT / "examples/model_repository/shout/config.pbtxt").read_text().replace('"python"', '"shout"')
    (run.folder / "model_repository/loud/config.pbtxt").write_text(config)


def _readme(run: PageRun) -> None:
    run.add_environment()
    own_models("my_model")(run)


def weights(kind: str, *places: str) -> Callable[[PageRun], None]:
    """A checkpoint of the reader's own: a tiny one of this kind, under these names."""

    def prepare(run: PageRun) -> None:
        for place in places:
            tiny_causal_lm(run.folder / place, kind)

    return prepare


def _tutorial_folder(run: PageRun) -> None:
    shutil.copytree(ROOT / "tests/e2e/journeys/folders/falcon7b", run.folder / "falcon7b")


def _compiled_file(run: PageRun) -> None:
    """What went into the compiler, in place of what it made: the CPU can run it."""
    command = [sys.executable, str(ROOT / "examples/inferentia/make_model.py"), "--model_type", "pytorch"]
    subprocess.run([*command, "--output", "rn50.pt"], cwd=run.folder, check=True, timeout=120)


def _packed_repository(run: PageRun) -> None:
    """In place of the ensemble with a large model: one model under its name, served where the platform calls it."""
    shutil.copytree(ROOT / "examples/model_repository/shout", run.folder / "falcon-7b-trt/ensemble")
    run.start_server(
        "MODEL_DEPLOY_PREDICT_ENDPOINT=/v2/models/ensemble/versions/1/generate "
        "tritonserver --model-repository=falcon-7b-trt"
    )
    run.moved["8080"] = str(free_ports(1)[0])


EYES = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request.inputs()) for request in requests]

    def answer(self, inputs):
        text, images = (tensor.as_numpy() for tensor in inputs)
        seen = f"{len(images[0])} bytes of an image: {text[0].decode()}"
        return pb_utils.InferenceResponse([pb_utils.Tensor("text_output", np.array([seen], np.object_))])
"""
EYES_CONFIG = """backend: "python"
input [
  { name: "text_input", data_type: TYPE_STRING, dims: [ 1 ] },
  { name: "images", data_type: TYPE_STRING, dims: [ -1 ], optional: true }
]
output [ { name: "text_output", data_type: TYPE_STRING, dims: [ 1 ] } ]
"""


def _model_with_eyes(run: PageRun) -> None:
    """Beside the examples, one that gets images."""
    repository = run.folder / "model_repository"
    shutil.copytree(ROOT / "examples/model_repository", repository)
    (repository / "eyes/1").mkdir(parents=True)
    (repository / "eyes/1/model.py").write_text(EYES)
    (repository / "eyes/config.pbtxt").write_text(EYES_CONFIG)
    Image.new("RGB", (4, 3), "blue").save(run.folder / "ship.png")
    run.start_server("trireme serve model_repository")


def _model_that_looks(run: PageRun) -> None:
    """One of the reader's own, and a picture."""
    shutil.copytree(generating_model("llava"), run.folder / "model_repository/looker")
    Image.new("RGB", (40, 30), "grey").save(run.folder / "cat.png")


def _redis(run: PageRun) -> None:
    """One of the page's own, where the machine has the program."""
    own_models("shout")(run)
    if which("redis-server") is None:
        return
    port = str(free_ports(1)[0])
    run.moved["6379"] = port
    run.add_command("redis-cli", f'exec "{which("redis-cli")}" -p {port} "$@"')
    run.start_beside(["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(run.folder)])


def _identity_model(run: PageRun) -> None:
    (run.folder / "models/ident/1").mkdir(parents=True)
    (run.folder / "models/ident/config.pbtxt").write_text(IDENTITY)


GAUDI_MODELS = {"Qwen/Qwen2-1.5B-Instruct": "qwen2", "huggyllama/llama-7b": "llama"}
SETUPS: Mapping[str, Setup] = {
    "README.md": Setup(prepare=_readme, hub={"facebook/opt-125m": "opt"}),
    # The first server there has no folder of backends, and a model that wants one.
    "docs/backends.md": Setup(prepare=_backend_of_ones_own, variables={"TRIREME_EXIT_ON_ERROR": "false"}),
    "docs/cloud.md": Setup(prepare=_packed_repository, variables={"PYTHONPATH": str(ROOT / "tests/docs/stand_ins")}),
    "docs/deploy.md": Setup(hub={"facebook/opt-125m": "opt", "tiiuae/falcon-7b": "opt"}),
    "docs/devices.md": Setup(prepare=own_models("shout")),
    "docs/front-end-processes.md": Setup(prepare=own_models("shout")),
    "docs/huggingface-folders.md": Setup(prepare=_tutorial_folder, hub={"tiiuae/falcon-7b": "falcon"}),
    "docs/gaudi.md": Setup(hub=GAUDI_MODELS),
    "docs/inferentia.md": Setup(prepare=_compiled_file, variables={"TRIREME_DEVICES": "cpu"}),
    "docs/llm.md": Setup(asks_examples=True),
    "docs/openai.md": Setup(prepare=_model_with_eyes),
    "docs/command-line.md": Setup(asks_examples=True),
    "docs/perf.md": Setup(asks_examples=True),
    "docs/python-models.md": Setup(prepare=own_models("my_model")),
    "docs/rate-limiter.md": Setup(prepare=own_models("shout")),
    "docs/response-cache.md": Setup(prepare=_redis),
    "docs/security.md": Setup(prepare=own_models("shout")),
    "docs/shared-memory.md": Setup(prepare=_identity_model),
    "docs/structured-output.md": Setup(asks_examples=True),
    "docs/token-models.md": Setup(hub={"facebook/opt-125m": "opt"}),
    "docs/tracing.md": Setup(asks_examples=True, prepare=own_models("shout")),
    "docs/transformers.md": Setup(prepare=_model_that_looks, hub={"Qwen/Qwen2.5-0.5B-Instruct": "qwen2"}),
    "examples/falcon-7b-trt/README.md": Setup(prepare=weights("falcon", "falcon-7b-instruct")),
    "examples/gaudi/README.md": Setup(hub=GAUDI_MODELS),
    "examples/gptneox/README.md": Setup(prepare=weights("gptneox", "examples/gptneox/h2ogpt-oig-oasst1-512-6_9b")),
    "examples/inflight_batcher_llm/README.md": Setup(prepare=weights("llama", "Llama-2-7b-chat-hf")),
    "examples/transformers/README.md": Setup(hub={"facebook/opt-125m": "opt", "Qwen/Qwen2-1.5B-Instruct": "qwen2"}),
}
"""By page; one that is not here needs nothing but itself."""
