"""Models of the transformers backend in the test's own process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

Serve = Callable[..., Any]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Loads a folder as the server would: completed, checked, initialized. Keywords are the parameters."""
    with ExitStack() as stack:
        yield _serving(stack, tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """The same, with one model for all tests of the file that ask for a folder with the same parameters: for those
    that look at answers alone."""
    with ExitStack() as stack:
        yield cache(_serving(stack, tmp_path_factory.mktemp("served")))


def _serving(stack: ExitStack, folder: Path) -> Serve:
    pytest.importorskip("transformers")
    pytest.importorskip("torch").set_num_threads(1)  # tiny matrices: threads only wait for each other
    from trireme.backends.transformers import model as backend
    from trireme.testing import load_model

    def start(source: Path | str, config: str = "", **parameters: Any) -> Any:
        model_dir = folder / f"model_{len(list(folder.iterdir()))}"
        (model_dir / "1").mkdir(parents=True)
        given = {"model": str(source), **parameters}
        lines = ['backend: "transformers"', config]
        for key, value in given.items():
            lines.append(f'parameters {{ key: "{key}" value {{ string_value: {json.dumps(str(value))} }} }}')
        lines.append(f'default_model_filename: "{backend.__file__}"')
        (model_dir / "config.pbtxt").write_text("\n".join(lines))
        return stack.enter_context(load_model(model_dir))

    return start
