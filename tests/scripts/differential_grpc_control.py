"""gRPC calls other than inference whose answers are compared, and what a call is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import grpc
from tritonclient.grpc import service_pb2 as pb


class Call(NamedTuple):
    name: str
    rpc: str
    messages: list[bytes]
    metadata: tuple[tuple[str, str], ...] = ()
    compression: grpc.Compression = grpc.Compression.NoCompression


def plain_calls() -> Iterator[Call]:
    for rpc in ("ServerLive", "ServerReady", "ServerMetadata"):
        yield Call(rpc, rpc, [b""])
        yield Call(f"{rpc} with unknown field", rpc, [b"\x78\x01"])
    for rpc in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"):
        for name in ("batch", "nosuch", "two", "stream", "labelled", ""):
            for version in ("", "1", "2", "0", "-1", "x", "1x", " 1", "+1", "99999999999999999999"):
                if rpc == "ModelStatistics" and name in ("", "stream"):
                    continue
                message = getattr(pb, f"{rpc}Request")(name=name, version=version)
                yield Call(f"{rpc} {name!r} {version!r}", rpc, [message.SerializeToString()])
        yield Call(f"{rpc} that is none", rpc, [b"\x0a\xff"])
    for message in (
        pb.RepositoryIndexRequest(),
        pb.RepositoryIndexRequest(ready=True),
        pb.RepositoryIndexRequest(repository_name="r"),
    ):
        yield Call(f"index {message}", "RepositoryIndex", [message.SerializeToString()])
    for rpc in ("RepositoryModelLoad", "RepositoryModelUnload"):
        for fields in ({"model_name": "batch"}, {"model_name": ""}, {"model_name": "batch", "repository_name": "r"}):
            yield Call(f"{rpc} {fields}", rpc, [getattr(pb, f"{rpc}Request")(**fields).SerializeToString()])
        for key in ("config", "file:1/model.py", "x", "unload_dependents"):
            for value in ({"string_param": "x"}, {"bytes_param": b"x"}, {"bool_param": True}, {"int64_param": 1}):
                request = getattr(pb, f"{rpc}Request")(model_name="batch")
                request.parameters[key].CopyFrom(pb.ModelRepositoryParameter(**value))
                yield Call(f"{rpc} {key} {value}", rpc, [request.SerializeToString()])
    for kind in ("System", "Cuda"):
        for name in ("", "x"):
            rpc = f"{kind}SharedMemoryStatus"
            yield Call(f"{rpc} {name!r}", rpc, [getattr(pb, f"{rpc}Request")(name=name).SerializeToString()])


def setting_calls() -> Iterator[Call]:
    log_changes: tuple[dict[str, dict[str, object]], ...] = (
        {},
        {"log_verbose_level": {"string_param": "x"}},
        {"log_verbose_level": {"bool_param": True}},
        {"log_info": {"uint32_param": 1}},
        {"log_info": {}},
        {"log_format": {"string_param": "x"}},
        {"log_format": {"bool_param": True}},
        {"log_file": {"string_param": "y"}},
        {"log_file": {"bool_param": True}},
        {"log_warning": {"string_param": ""}},
        {"log_error": {"string_param": ""}},
        {"nosuch": {"bool_param": True}},
        {"log_info": {"bool_param": True}, "log_format": {"string_param": "default"}},
    )
    for change in log_changes:
        settings = {key: pb.LogSettingsRequest.SettingValue(**value) for key, value in change.items()}
        yield Call(f"log {change}", "LogSettings", [pb.LogSettingsRequest(settings=settings).SerializeToString()])
    trace_changes: tuple[dict[str, list[str]], ...] = (
        {},
        {"trace_rate": ["x"]},
        {"trace_rate": ["1", "2"]},
        {"trace_rate": []},
        {"trace_rate": ["99999999999999999999"]},
        {"trace_level": ["OFF", "TENSORS"]},
        {"trace_level": ["NOSUCH"]},
        {"trace_level": ["OFF"]},
        {"trace_level": []},
        {"trace_count": ["-2"]},
        {"trace_count": ["x"]},
        {"trace_count": []},
        {"log_frequency": ["x"]},
        {"trace_file": ["x"]},
        {"trace_file": []},
        {"trace_mode": ["x"]},
        {"nosuch": ["x"]},
    )
    for model in ("", "batch", "nosuch"):
        for trace_change in trace_changes:
            values = {key: pb.TraceSettingRequest.SettingValue(value=value) for key, value in trace_change.items()}
            message = pb.TraceSettingRequest(settings=values, model_name=model)
            yield Call(f"trace {model!r} {trace_change}", "TraceSetting", [message.SerializeToString()])
