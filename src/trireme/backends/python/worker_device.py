"""Which device this worker was placed on, for code that puts tensors there."""

from __future__ import annotations

import os

DEVICE_VARIABLE = "TRIREME_DEVICE"
CPU = "cpu"


def device_of_worker() -> str:
    """The server's answer, in the worker's own numbering: "cpu", "cuda:1", "hpu:0", "neuron:0-3".

    A worker sees every GPU of the server, and the number says which of them is its own. Of Gaudis and NeuronCores it
    sees those alone that it was given, so their numbers begin with 0.
    """
    return os.environ.get(DEVICE_VARIABLE, "").strip() or CPU
