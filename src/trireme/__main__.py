"""`python -m trireme`: the `trireme` command, where its script is not on the PATH."""

from __future__ import annotations

import sys

from trireme.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
