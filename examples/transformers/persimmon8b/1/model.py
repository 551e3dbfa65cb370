"""Persimmon 8B continues a text; config.pbtxt says what can be set."""

from trireme.models import TextPromptModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
