"""Which tests of a parallel run stay together in one process: those of a file, and those of a folder that share
what is costly to make: a server, the parsed sources."""

from __future__ import annotations

FOLDERS_WITH_ONE_SERVER = (
    "tests/architecture",
    "tests/contract/clients",
    "tests/contract/openai_api",
    "tests/e2e/console",
    "tests/e2e/llm",
    "tests/e2e/token_models",
)


def scope_of(nodeid: str) -> str:
    """The file or the folder that the test stays together with."""
    file = nodeid.split("::", 1)[0]
    folder = file.rpartition("/")[0]
    return folder if folder in FOLDERS_WITH_ONE_SERVER else file
