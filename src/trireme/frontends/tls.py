"""The TLS side of a listener: certificates that are read again when their files change, while connections go on."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trireme.access.file_watch import FileWatch
from trireme.core.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The files of one service; all are PEM."""

    service: str
    """How errors name it: `gRPC`."""
    certificate: str
    """The server's certificate, and those between it and its root."""
    key: str
    """Its private key; "" where it is in the same file."""
    root: str = ""
    """What certificates of clients are checked against, who then need one."""
    protocols: tuple[str, ...] = ("http/1.1",)
    """What is offered by ALPN."""

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return [Path(name) for name in (self.certificate, self.key, self.root) if name]


class Certificates:
    """The context of a listener, whose new connections get what the files held last."""

    def __init__(self, options: TlsOptions) -> None:
        """Raises ServingError for files that do not work."""
        self._options = options
        self._watch = FileWatch(f"{options.service} certificates", options.files, self._load)
        self._current = self._watch.read_first()
        self.context = self._current
        """For `create_server`; at each handshake it makes way for the present one."""
        self.context.sni_callback = self._choose

    def start(self) -> None:
        """Follows the files from now on."""
        self._watch.start(self._use)

    def stop(self) -> None:
        """Follows them no longer."""
        self._watch.stop()

    def _use(self, context: ssl.SSLContext) -> None:
        self._current = context

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called in each handshake, whether the client names a server or not."""
        if context is not self._current:
            connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        options = self._options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(list(options.protocols))
        try:
            context.load_cert_chain(options.certificate, options.key or None, password=_refuse_passphrase)
        except (OSError, ValueError) as error:
            raise _unusable(options, (options.certificate, options.key), error) from None
        if options.root:
            try:
                context.load_verify_locations(options.root)
            except (OSError, ValueError) as error:
                raise _unusable(options, (options.root,), error) from None
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session would not show its certificate again, also when its root is trusted no longer.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context


def _refuse_passphrase() -> str:
    raise ValueError("the private key needs a passphrase, which nobody is there to type; take it off with openssl")


def _unusable(options: TlsOptions, files: Sequence[str], error: Exception) -> InvalidArgumentError:
    named = " and ".join(f"'{name}'" for name in files if name)
    return InvalidArgumentError(f"the {options.service} certificate files {named} cannot be used: {_reason(error)}")


def _reason(error: Exception) -> str:
    """In the words of a person, where OpenSSL's are known to puzzle."""
    text = str(error)
    if "KEY_VALUES_MISMATCH" in text:
        return "the private key belongs to another certificate"
    if "NO_START_LINE" in text or "PEM" in text or "NO_CERTIFICATE_OR_CRL_FOUND" in text:
        return f"there is no PEM block of that kind in it ({text})"
    return text
