"""`python -m trireme.gen_triton_model`: `trireme neuron-model` under the name of Triton's generator for Inferentia."""

from __future__ import annotations

import sys

from trireme.tools.neuron_model.generate import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "python -m trireme.gen_triton_model"))
