"""What the server process and a front-end process tell each other: tuples that begin with one of these numbers.

Both are the same program on the same machine, and nobody else can open the socket between them. Connections and calls
are known by numbers: those of connections are given by the server process, those of calls by the front end.
"""

from __future__ import annotations

from typing import Final

MARSHAL_VERSION: Final = 4

# To the front-end process.
OPEN: Final = 1
"""(connection, service, whether requests may be read here): a client; its socket has been sent ahead."""
WRITE: Final = 2
"""(connection, bytes): for the client."""
HANDED: Final = 3
"""(connection, size): so much of what was READ has been looked at; as much more may come."""
END_WRITING: Final = 5
"""(connection,): what is written so far is all there will be; the client may go on sending."""
CLOSE: Final = 6
"""(connection,): to be closed behind what is written."""
ABORT: Final = 7
"""(connection,): to be closed at once."""
PING: Final = 8
"""(): to be answered with PONG."""
STOP: Final = 9
"""(): the process is to end when its connections have."""
ANSWER: Final = 10
"""(call, served version, outputs, parameters): the model's response."""
REFUSE: Final = 11
"""(call, error): the request was not taken."""
FAIL: Final = 12
"""(call, error): the request was taken and ended with an error."""
SEND_WHOLE: Final = 13
"""(call,): the front end is to send the request's bytes as they are, for the server process to read."""
IDLE: Final = 14
"""(connection, size): so much had come of the client when all of it was answered."""
PART: Final = 15
"""(call, output, size, bytes): some of the data of a large answer's output, which has this size and this place among
the outputs. ANSWER follows behind the last, with None for the data."""

STOPPING: Final = 18
"""(): the server ends, and takes no further calls; connections are about to be closed."""

LEASE: Final = 16
"""(lease, term, version, configuration, whether outputs are checked strictly, instance): a worker that runs batches
of this process from now on; its sockets, and memory to count in, have been sent ahead. What one term of leases has
is one model."""
RECALL: Final = 17
"""(lease,): the worker is to go back to the server process when it has done what it was given."""

# To the server process.
MADE: Final = 20
"""(connection,): the client is there, behind its TLS handshake where there is one."""
READ: Final = 21
"""(connection, bytes): from the client."""
ENDED: Final = 22
"""(connection,): the client sends nothing more."""
LOST: Final = 23
"""(connection,): the client, or its connection, is gone."""
TAKEN: Final = 24
"""(connection, size): so much of what was written has left the process."""
PONG: Final = 25
"""()"""
USED: Final = 26
"""(connections,): requests came on these of which the server process has seen no bytes."""
INFER: Final = 27
"""(call, connection, service, model, version, id, inputs, requested outputs, settings, whether the answer is written as
JSON): a request that has been read."""
CANCEL: Final = 28
"""(call,): nobody waits for it any more."""
UNSENT: Final = 29
"""(connection, size): so much waits in the front-end process for the client to read it."""
SETTLED: Final = 30
"""(call,): an answer that came in parts is on its way to the client, and counted as UNSENT from now on."""

UNFIT: Final = 31
"""(term, reason): the model's workers are better off with the server process."""
NEW_RECORDS: Final = 32
"""(model, version, new_records): slow and failed requests that ran on leased workers, for people who look."""
SHOWN: Final = 33
"""(services,): those for which the process has a certificate. Told at its start and when that changes, where there are
services that need one; before it is, the process gets no clients of these."""

WINDOW_BYTES: Final = 1 << 20
"""So much of a connection may be on its way to the client before some of it is TAKEN."""
TAKEN_STEP_BYTES: Final = 1 << 18
"""TAKEN is said in steps of at least this size."""
READ_WINDOW_BYTES: Final = 1 << 19
"""With more than this of a client READ and not HANDED, nothing more is read of it."""
FIRST_WINDOW_BYTES: Final = 1 << 17
"""The same before the first time it was HANDED: many clients may begin at once."""
HANDED_STEP_BYTES: Final = 1 << 17
"""HANDED is said in steps of at least this size."""
