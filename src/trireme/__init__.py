"""Trireme: an inference server that speaks Triton's protocols, installed with pip."""

__version__ = "0.1.0"
