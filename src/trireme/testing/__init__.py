"""What people test their models with: a model without a server, and what it calls answered by the test."""

from trireme.testing.loaded_model import LoadedModel, Request, Result, load_model
from trireme.testing.local_server import LogEntry, ModelCall

__all__ = ["LoadedModel", "LogEntry", "ModelCall", "Request", "Result", "load_model"]
