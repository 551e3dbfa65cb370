"""The TLS side of the listener: HTTP/2 is agreed on by ALPN, client certificates are required where asked for."""

from __future__ import annotations

import ssl

from trireme.core.errors import InvalidArgumentError
from trireme.frontends.grpc.options import GrpcFrontendOptions


def create_ssl_context(options: GrpcFrontendOptions) -> ssl.SSLContext | None:
    """The context that the flags describe; None without TLS. Raises ServingError for files that do not work."""
    if not (options.use_ssl or options.use_ssl_mutual):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(options.server_cert, options.server_key or None)
        if options.use_ssl_mutual:
            context.load_verify_locations(options.root_cert)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        files = f"'{options.server_cert}', '{options.server_key}', '{options.root_cert}'"
        raise InvalidArgumentError(f"the gRPC certificate files {files} cannot be used: {error}") from None
    return context
