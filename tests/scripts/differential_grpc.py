"""Sends the same generated gRPC calls to two servers and lists every difference in status, message and responses.

    python tests/scripts/differential_models.py REPOSITORY     # then start both servers on REPOSITORY
    python tests/scripts/differential_grpc.py --ours 127.0.0.1:8001 --theirs 127.0.0.1:9001

Statistics are compared, so both have to be fresh. Ends with 0 when nothing differs. Differences on purpose are explained in docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterator
from typing import NamedTuple

import grpc
from differential_grpc_cases import Call, all_calls
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2

SERVICE = "inference.GRPCInferenceService"
TIMEOUT_S = 15


class Answer(NamedTuple):
    status: str
    text: str
    responses: list[str]


def ask(channel: grpc.Channel, call: Call) -> Answer:
    if call.rpc == "ModelStreamInfer":
        return _ask_stream(channel, call)
    response_class = getattr(service_pb2, f"{call.rpc}Response")
    method = channel.unary_unary(f"/{SERVICE}/{call.rpc}", bytes, response_class.FromString)
    try:
        response = method(call.messages[0], timeout=TIMEOUT_S, metadata=call.metadata, compression=call.compression)
    except grpc.RpcError as error:
        return Answer(error.code().name, error.details() or "", [])
    return Answer("OK", "", [plain(response)])


def _ask_stream(channel: grpc.Channel, call: Call) -> Answer:
    response_class = service_pb2.ModelStreamInferResponse
    method = channel.stream_stream(f"/{SERVICE}/{call.rpc}", bytes, response_class.FromString)
    responses: list[str] = []
    try:
        for response in method(iter(call.messages), timeout=TIMEOUT_S, metadata=call.metadata):
            responses.append(plain(response))
    except grpc.RpcError as error:
        return Answer(error.code().name, error.details() or "", responses)
    return Answer("OK", "", responses)


def plain(message: Message) -> str:
    """The message as text, without what no two runs have in common."""
    if isinstance(message, service_pb2.ModelStatisticsResponse):
        message.model_stats.sort(key=lambda entry: (entry.name, entry.version))
        for duration in _durations(message):
            duration.ClearField("ns")
        for entry in message.model_stats:
            entry.ClearField("last_inference")
    if isinstance(message, service_pb2.ServerMetadataResponse):
        message.ClearField("version")
    return " ".join(str(message).split())


def _durations(message: Message) -> Iterator[Message]:
    """Every duration anywhere inside a message."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            entries = list(value.values())
        else:
            entries = list(value) if isinstance(value, collections.abc.Sequence) else [value]
        for entry in entries:
            if isinstance(entry, service_pb2.StatisticDuration):
                yield entry
            elif isinstance(entry, Message):
                yield from _durations(entry)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--theirs", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only calls whose name contains this")
    args = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(args.ours, options) as ours_at, grpc.insecure_channel(args.theirs, options) as theirs_at:
        for call in all_calls(args.seed):
            if args.only not in call.name:
                continue
            theirs, ours = ask(theirs_at, call), ask(ours_at, call)
            if any("Failed to connect" in answer.text for answer in (theirs, ours)):
                print(f"a server is gone, before: {call.name}")
                return 2
            kind = next((n for n, a, b in zip(Answer._fields, theirs, ours, strict=True) if a != b), "same")
            counts[kind] += 1
            if kind != "same":
                print(f"{kind}: {call.name}\n  theirs {tuple(theirs)!r:.1500}\n  ours   {tuple(ours)!r:.1500}")
    print(" ".join(f"{kind} {count}" for kind, count in counts.most_common()))
    return 0 if set(counts) <= {"same"} else 1


if __name__ == "__main__":
    sys.exit(main())
