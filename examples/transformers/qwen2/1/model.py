"""Qwen2 1.5B continues several prompts of one request; config.pbtxt says what can be set."""

from trireme.models import TextPromptModel as TritonPythonModel

__all__ = ["TritonPythonModel"]
