"""Which tests of a parallel run stay together in one process, and which of them begin first.

Those of a file stay together, and those of a folder that share what is costly to make: a server, the parsed sources.
A file whose tests share little and take long is divided. What takes longest begins first, so that no process works
alone at the end.
"""

from __future__ import annotations

from zlib import crc32

FOLDERS_WITH_ONE_SERVER = (
    "tests/architecture",
    "tests/contract/clients",
    "tests/contract/openai_api",
    "tests/e2e/console",
    "tests/e2e/console/trying",
    "tests/e2e/llm",
    "tests/e2e/token_models",
)
WITH_SERVERS_OF_THEIR_OWN = (
    "tests/e2e/llm/test_adapters.py",
    "tests/e2e/llm/test_build_command.py",
    "tests/e2e/llm/test_mpi_ranks.py",
    "tests/e2e/llm/test_other_models.py",
    "tests/e2e/llm/test_ranks.py",
    "tests/e2e/token_models/test_falcon_journey.py",
    "tests/e2e/token_models/test_gptneox_journey.py",
    "tests/e2e/token_models/test_gptneox_unedited.py",
    "tests/e2e/token_models/test_inflight_batcher.py",
    "tests/e2e/token_models/test_inflight_whole.py",
)
"""The files of those folders that do not use what the others share."""
PARTS = {"tests/docs/test_pages.py": 8}
"""The files that are divided, and into how many."""
LONGEST = (
    "tests/docs/test_pages.py",
    "tests/e2e/journeys/test_analyze_journey.py",
    "tests/e2e/token_models",
    "tests/e2e/console",
    "tests/e2e/console/trying",
    "tests/e2e/gaudi/test_gaudi_journey.py",
    "tests/e2e/test_deploy.py",
    "tests/e2e/journeys/test_huggingface_folders.py",
    "tests/e2e/token_models/test_gptneox_unedited.py",
    "tests/e2e/analyze/test_analyze_search.py",
    "tests/e2e/analyze/test_analyze_faults.py",
    "tests/e2e/token_models/test_gptneox_journey.py",
)
"""As `pytest --cpu-times` lists them."""


def scope_of(nodeid: str) -> str:
    """The file, the part of a file, or the folder that the test stays together with."""
    file = nodeid.split("::", 1)[0]
    if file in PARTS:
        return f"{file}#{crc32(nodeid.encode()) % PARTS[file]}"
    folder = file.rpartition("/")[0]
    return folder if folder in FOLDERS_WITH_ONE_SERVER and file not in WITH_SERVERS_OF_THEIR_OWN else file


def place_of(scope: str) -> int:
    """Smaller for what begins earlier; the rest keeps its order."""
    name = scope.partition("#")[0]
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
