"""`python first_rank.py <model>`: a first rank that tells which process the other one is, and waits for its end."""

import sys
import time
from pathlib import Path

from trireme.llm.executor_choice import load_executor
from trireme.llm.options import EngineOptions

executor = load_executor(Path(sys.argv[1]), EngineOptions(cache_bytes=2**18, ranks=2), "cpu")
print(executor._others._ranks[0].pid, flush=True)  # type: ignore[attr-defined]
time.sleep(600)
