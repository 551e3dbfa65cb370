"""What people test their models with: a model without a server, its calls answered by the test; or a server."""

from trireme.testing.loaded_model import LoadedModel, Request, Result, load_model
from trireme.testing.local_server import LogEntry, ModelCall
from trireme.testing.served_repository import ServedRepository, ServerFailed, serve

__all__ = [
    "LoadedModel",
    "LogEntry",
    "ModelCall",
    "Request",
    "Result",
    "ServedRepository",
    "ServerFailed",
    "load_model",
    "serve",
]
