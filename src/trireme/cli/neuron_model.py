"""`trireme neuron-model`: writes the folder of a model for AWS Inferentia and Trainium."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.tools.neuron_model.generate import run

SUMMARY = "write the folder of a model for AWS NeuronCores"


def main(arguments: Sequence[str]) -> int:
    """Runs the generator; the exit code of the process."""
    return run(arguments, "trireme neuron-model")
