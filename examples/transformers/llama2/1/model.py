"""Llama 7B continues several prompts of one request; config.pbtxt says what can be set."""

from trireme.backends.text_prompts import TritonPythonModel

__all__ = ["TritonPythonModel"]
