"""How the messages say that an extra is installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from trireme.core.wording.extras import install_line

ROOT = Path(__file__).parents[4]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_command_is_that_of_the_documents() -> None:
    assert "pip install -c constraints.txt '.[transformers]'" in (ROOT / "docs/deploy.md").read_text()
    assert install_line("transformers").startswith("pip install -c constraints.txt '.[transformers]'")


def test_no_message_names_a_package_that_is_on_no_index() -> None:
    files = sorted((ROOT / "src").rglob("*.py"))
    assert [str(file) for file in files if "install 'trireme-server" in file.read_text(encoding="utf-8")] == []


def test_messages_name_extras_that_there_are() -> None:
    texts = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "src").rglob("*.py"))]
    named = {name for text in texts for name in re.findall(r"install_line\(['\"](\w+)['\"]\)", text)}
    assert {"redis", "transformers"} <= named <= set(EXTRAS)
