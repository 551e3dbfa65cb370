"""Failures of a connection in words that say what to look at."""

from __future__ import annotations

import http.client
import socket
import ssl

from trireme.tools.client.errors import TimedOutError, UnreachableError


def connection_failure(error: Exception, place: str, timeout_s: float, is_grpc: bool | None) -> UnreachableError:
    """What to tell for what went wrong between us and the server; no protocol: there is HTTP alone."""
    kind = TimedOutError if isinstance(error, TimeoutError) else UnreachableError
    return kind(f"{_reason(error, place, timeout_s)}{_advice(error, is_grpc)}")


def _reason(error: Exception, place: str, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"the server at {place} did not answer within {timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return f"no server answers at {place}: connection refused"
    if isinstance(error, socket.gaierror):
        return f"no server answers at {place}: there is no host of this name ({error.strerror})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {place} cannot be trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"{place} does not speak TLS: {error.reason or error}"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"no server answers at {place}: {error.strerror or error}"
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return f"what answers at {place} does not speak HTTP/1.1"
    return f"the connection to {place} broke: {error or type(error).__name__}"


def _advice(error: Exception, is_grpc: bool | None) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "\n'trireme serve FOLDER' starts a server; was another address meant?"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "\n--ca FILE names who signed it"
    if isinstance(error, (OSError, TimeoutError)) and not isinstance(error, ConnectionError):
        return ""
    if is_grpc is None:
        return "\nif this is the port for gRPC, give the one for HTTP"
    other, usual = ("HTTP", "without --grpc") if is_grpc else ("gRPC", "with --grpc")
    return f"\nif this is the port for {other}, ask {usual}"
