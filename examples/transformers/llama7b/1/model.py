"""Llama 2 7B continues a text; config.pbtxt says what can be set."""

from trireme.backends.text_prompts import TritonPythonModel

__all__ = ["TritonPythonModel"]
