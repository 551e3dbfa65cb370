"""Models of the transformers backend in the test's own process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

Serve = Callable[..., Any]


@pytest.fixture
def serve(tmp_path: Path) -> Any:
    """Loads a folder as the server would: completed, checked, initialized. Keywords are the parameters."""
    pytest.importorskip("transformers")
    pytest.importorskip("torch").set_num_threads(1)  # tiny matrices: threads only wait for each other
    from trireme.backends.transformers import model as backend
    from trireme.testing import load_model

    with ExitStack() as stack:

        def start(source: Path | str, config: str = "", **parameters: Any) -> Any:
            model_dir = tmp_path / f"model_{len(list(tmp_path.iterdir()))}"
            (model_dir / "1").mkdir(parents=True)
            given = {"model": str(source), **parameters}
            lines = ['backend: "transformers"', config]
            for key, value in given.items():
                lines.append(f'parameters {{ key: "{key}" value {{ string_value: {json.dumps(str(value))} }} }}')
            lines.append(f'default_model_filename: "{backend.__file__}"')
            (model_dir / "config.pbtxt").write_text("\n".join(lines))
            return stack.enter_context(load_model(model_dir))

        yield start
