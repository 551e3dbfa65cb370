"""Runs what has failed beside other tests once more, alone: `python tests/run_again.py CODE`, behind a run of pytest.

A few tests that pass alone are unsteady: the run counts as passed, and names them, because they are defects all the
same, of the test or of what it tests. Many failures, a crash or an interruption are not looked at again. Ends with the
exit code that stands for all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 5
_TESTS_FAILED = 1
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(code: int) -> int:
    """The exit code, where pytest has ended with `code`."""
    if code != _TESTS_FAILED or not _FAILED.exists():
        return code
    failed = list(json.loads(_FAILED.read_text()))
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests have failed: more than {MOST} are not run again")
        return code
    print(f"{len(failed)} of the tests have failed, and are run again, alone", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", *failed], check=False).returncode
    if again == 0:
        print("\n".join(["UNSTEADY: these failed among others and passed alone", *failed]))
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
