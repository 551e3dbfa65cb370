"""What pages take for granted: models of the reader's own, a hub, the server with the examples."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from local_hub import LocalHub
from page_run import ROOT, PageRun
from tiny_models import cached

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


def _identity_model(run: PageRun) -> None:
    (run.folder / "models/ident/1").mkdir(parents=True)
    (run.folder / "models/ident/config.pbtxt").write_text(IDENTITY)


SETUPS: Mapping[str, Setup] = {
    "README.md": Setup(asks_examples=True, prepare=own_models("my_model")),
    # The first server there has no folder of backends, and a model that wants one.
    "docs/backends.md": Setup(prepare=_backend_of_ones_own, variables={"TRIREME_EXIT_ON_ERROR": "false"}),
    "docs/deploy.md": Setup(hub={"facebook/opt-125m": "opt", "tiiuae/falcon-7b": "opt"}),
    "docs/devices.md": Setup(prepare=own_models("shout")),
    "docs/front-end-processes.md": Setup(prepare=own_models("shout")),
    "docs/llm.md": Setup(asks_examples=True),
    "docs/openai.md": Setup(asks_examples=True),
    "docs/command-line.md": Setup(asks_examples=True),
    "docs/perf.md": Setup(asks_examples=True),
    "docs/python-models.md": Setup(prepare=own_models("my_model")),
    "docs/rate-limiter.md": Setup(prepare=own_models("shout")),
    "docs/response-cache.md": Setup(prepare=own_models("shout")),
    "docs/security.md": Setup(prepare=own_models("shout")),
    "docs/shared-memory.md": Setup(prepare=_identity_model),
    "docs/structured-output.md": Setup(asks_examples=True),
    "docs/token-models.md": Setup(hub={"facebook/opt-125m": "opt"}),
    "docs/tracing.md": Setup(asks_examples=True, prepare=own_models("shout")),
    "docs/transformers.md": Setup(hub={"Qwen/Qwen2.5-0.5B-Instruct": "qwen2"}),
    "examples/gaudi/README.md": Setup(hub={"Qwen/Qwen2-1.5B-Instruct": "qwen2", "huggyllama/llama-7b": "llama"}),
    "examples/transformers/README.md": Setup(hub={"facebook/opt-125m": "opt", "Qwen/Qwen2-1.5B-Instruct": "qwen2"}),
}
"""By page; one that is not here needs nothing but itself."""
