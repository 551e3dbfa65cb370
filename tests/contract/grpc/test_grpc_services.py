"""Every RPC but inference, through the official stubs; health and reflection through messages described by hand."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from tritonclient.grpc import service_pb2, service_pb2_grpc

from trireme.protocol.grpc_descriptors import ServiceDescriptors


@pytest.fixture
def stub(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def failure(call, *args) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*args)
    return caught.value.code().name, caught.value.details()


def test_health(stub) -> None:
    assert stub.ServerLive(service_pb2.ServerLiveRequest()).live
    assert stub.ServerReady(service_pb2.ServerReadyRequest()).ready
    assert stub.ModelReady(service_pb2.ModelReadyRequest(name="ident")).ready
    assert not stub.ModelReady(service_pb2.ModelReadyRequest(name="nope")).ready


def test_metadata_and_config(stub) -> None:
    server = stub.ServerMetadata(service_pb2.ServerMetadataRequest())
    assert (server.name, list(server.extensions)) == ("triton", ["classification", "sequence"])
    model = stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="ident"))
    assert (model.platform, list(model.versions), list(model.inputs[0].shape)) == ("python", ["1"], [-1, -1])
    config = stub.ModelConfig(service_pb2.ModelConfigRequest(name="ident")).config
    assert (config.name, config.max_batch_size) == ("ident", 8)
    unknown = ("NOT_FOUND", "Request for unknown model: 'nope' is not found")
    assert failure(stub.ModelMetadata, service_pb2.ModelMetadataRequest(name="nope")) == unknown


def test_statistics(stub) -> None:
    (stats,) = stub.ModelStatistics(service_pb2.ModelStatisticsRequest()).model_stats
    assert (stats.name, stats.inference_count, stats.inference_stats.success.count) == ("ident", 6, 3)
    assert stats.inference_stats.HasField("cache_miss")
    assert stats.batch_stats[0].batch_size == 2
    assert stats.response_stats["0"].success.ns == 30
    assert failure(stub.ModelStatistics, service_pb2.ModelStatisticsRequest(name="nope"))[0] == "INVALID_ARGUMENT"


def test_the_index(stub) -> None:
    names = [entry.name for entry in stub.RepositoryIndex(service_pb2.RepositoryIndexRequest()).models]
    assert names == ["ident", "other"]
    (ready,) = stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(ready=True)).models
    assert (ready.version, ready.state) == ("1", "READY")
    refused = ("UNIMPLEMENTED", "'repository_name' specification is not supported")
    assert failure(stub.RepositoryIndex, service_pb2.RepositoryIndexRequest(repository_name="r")) == refused


def test_load_and_unload(listener, stub) -> None:
    request = service_pb2.RepositoryModelLoadRequest(model_name="m")
    request.parameters["config"].string_param = "{}"
    request.parameters["file:1/model.py"].bytes_param = b"\0\xff"
    stub.RepositoryModelLoad(request)
    assert listener.server.model_control.loaded == [("m", "{}", {"file:1/model.py": b"\0\xff"})]
    request = service_pb2.RepositoryModelUnloadRequest(model_name="m")
    request.parameters["unload_dependents"].bool_param = True
    stub.RepositoryModelUnload(request)
    assert listener.server.model_control.unloaded == [("m", True)]
    text = "load failed for model 'bad': version 1 is at UNAVAILABLE state: Internal: x;\n"
    bad = service_pb2.RepositoryModelLoadRequest(model_name="bad")
    assert failure(stub.RepositoryModelLoad, bad) == ("INVALID_ARGUMENT", text)


@pytest.mark.parametrize(
    ("key", "field", "value", "text"),
    [
        ("config", "bool_param", True, "invalid value type for load parameter 'config', expected string_param."),
        ("file:1/x", "string_param", "x", "invalid value type for load parameter 'file:1/x', expected bytes_param."),
        ("foo", "string_param", "x", "unrecognized load parameter 'foo'."),
    ],
)
def test_wrong_load_parameters_are_refused(stub, key, field, value, text) -> None:
    request = service_pb2.RepositoryModelLoadRequest(model_name="m")
    setattr(request.parameters[key], field, value)
    assert failure(stub.RepositoryModelLoad, request) == ("INVALID_ARGUMENT", text)


def test_a_wrong_unload_parameter_is_refused(stub) -> None:
    request = service_pb2.RepositoryModelUnloadRequest(model_name="m")
    request.parameters["unload_dependents"].string_param = "x"
    text = "invalid value type for 'unload_dependents' parameter, expected bool_param."
    assert failure(stub.RepositoryModelUnload, request) == ("INVALID_ARGUMENT", text)


def test_shared_memory_is_disabled(stub) -> None:
    assert not stub.SystemSharedMemoryStatus(service_pb2.SystemSharedMemoryStatusRequest()).regions
    assert not stub.CudaSharedMemoryStatus(service_pb2.CudaSharedMemoryStatusRequest()).regions
    named = service_pb2.SystemSharedMemoryStatusRequest(name="x")
    missing = ("NOT_FOUND", "Unable to find system shared memory region: 'x'")
    assert failure(stub.SystemSharedMemoryStatus, named) == missing
    text = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
    for kind in ("System", "Cuda"):
        for action in ("Register", "Unregister"):
            name = f"{kind}SharedMemory{action}"
            refused = failure(getattr(stub, name), getattr(service_pb2, f"{name}Request")(name="r"))
            assert refused == ("UNIMPLEMENTED", text)


def test_log_settings(stub) -> None:
    settings = stub.LogSettings(service_pb2.LogSettingsRequest()).settings
    assert settings["log_info"].bool_param
    assert settings["log_verbose_level"].WhichOneof("parameter_choice") == "uint32_param"
    change = service_pb2.LogSettingsRequest()
    change.settings["log_verbose_level"].uint32_param = 2
    change.settings["unknown"].bool_param = True
    assert stub.LogSettings(change).settings["log_verbose_level"].uint32_param == 2
    wrong = service_pb2.LogSettingsRequest()
    wrong.settings["log_info"].string_param = "x"
    assert failure(stub.LogSettings, wrong) == ("INVALID_ARGUMENT", "expect boolean for 'log_info'")


def test_trace_settings(listener, stub) -> None:
    settings = stub.TraceSetting(service_pb2.TraceSettingRequest()).settings
    assert {key: list(value.value) for key, value in settings.items()} == {
        "trace_level": ["OFF"],
        "trace_rate": ["1000"],
    }
    change = service_pb2.TraceSettingRequest(model_name="m")
    change.settings["trace_level"].value.extend(["TIMESTAMPS", "TENSORS"])
    change.settings["trace_rate"].value.append("5")
    change.settings["trace_count"].SetInParent()
    stub.TraceSetting(change)
    expected = {"trace_level": ["TIMESTAMPS", "TENSORS"], "trace_rate": "5", "trace_count": None}
    assert listener.server.settings.trace_changes == [("m", expected)]
    change.settings["trace_rate"].value.append("6")
    assert failure(stub.TraceSetting, change) == ("INVALID_ARGUMENT", "expect only 1 value for 'trace_rate'")


DESCRIPTORS = ServiceDescriptors()


def test_grpc_health_check_and_watch(listener, channel) -> None:
    request = DESCRIPTORS.message("grpc.health.v1.HealthCheckRequest")
    response = DESCRIPTORS.message("grpc.health.v1.HealthCheckResponse")
    arguments = (request.SerializeToString, response.FromString)
    check = channel.unary_unary("/grpc.health.v1.Health/Check", *arguments)
    assert check(request(service="anything")).status == 1
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch", *arguments)
    statuses = watch(request())
    assert next(statuses).status == 1
    statuses.cancel()
    listener.server.health.is_exiting = True
    assert failure(check, request()) == ("UNAVAILABLE", "Server exiting")


@pytest.mark.parametrize("package", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
def test_reflection_describes_every_service(channel, package) -> None:
    request = DESCRIPTORS.message(f"{package}.ServerReflectionRequest")
    response = DESCRIPTORS.message(f"{package}.ServerReflectionResponse")
    info = channel.stream_stream(
        f"/{package}.ServerReflection/ServerReflectionInfo", request.SerializeToString, response.FromString
    )
    (listed,) = info(iter([request(list_services="*")]))
    services = [service.name for service in listed.list_services_response.service]
    assert services[:2] == ["inference.GRPCInferenceService", "grpc.health.v1.Health"]
    pool = descriptor_pool.DescriptorPool()
    for answer in info(request(file_containing_symbol=name) for name in services):
        for wire in reversed(answer.file_descriptor_response.file_descriptor_proto):
            pool.Add(descriptor_pb2.FileDescriptorProto.FromString(wire))
    methods = pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name
    assert "ModelStreamInfer" in methods
    assert pool.FindServiceByName(f"{package}.ServerReflection")
    by_name, missing = info(iter([request(file_by_filename="grpc_service.proto"), request(file_by_filename="x")]))
    assert len(by_name.file_descriptor_response.file_descriptor_proto) == 2
    assert missing.error_response.error_code == 5
    assert missing.original_request.file_by_filename == "x"


def test_bytes_that_are_no_message_are_internal(channel) -> None:
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
    assert failure(call, b"\xff\xff") == ("INTERNAL", "Unable to parse request")
