"""Continues texts; config.pbtxt names the model and says how it writes and where it runs (docs/gaudi.md)."""

from trireme.models import CausalLanguageModel


class TritonPythonModel(CausalLanguageModel):
    """Override `initialize` or `execute` for what the parameters cannot say."""

    device_kinds = ("hpu", "cuda", "cpu")  # where it can run; the parameter `device` says where it does
