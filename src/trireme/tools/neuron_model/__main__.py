"""`trireme neuron-model` as a module: `python -m trireme.tools.neuron_model`."""

from __future__ import annotations

import sys

from trireme.tools.neuron_model.generate import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "python -m trireme.tools.neuron_model"))
