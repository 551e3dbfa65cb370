"""Flags that carry settings of their own, and flags with old names."""

from __future__ import annotations

import re

import pytest

from trireme.config.compat_words import words_of_model
from trireme.config.options.option import OptionError
from trireme.config.options.parser import ParsedOptions, parse_options
from trireme.config.options.server import ServerOptions
from trireme.config.options.setting_values import CacheSettings, RateLimitResource, RestrictedApi
from trireme.core.errors import InvalidArgumentError


def parse(*arguments: str) -> ServerOptions:
    return parsed(*arguments).options


def parsed(*arguments: str) -> ParsedOptions:
    return parse_options(["--model-repository=models", *arguments], {})


def refusal(*arguments: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse(*arguments)
    return str(caught.value)


def test_restricted_apis_are_locked_by_header_and_value() -> None:
    options = parse("--http-restricted-api=health,model-config:key=a=b", "--grpc-restricted-protocol=trace:k=v")
    key = RestrictedApi("key", "a=b")
    assert options.http_restricted_api == {"health": key, "model-config": key}
    assert options.grpc_restricted_protocol == {"trace": RestrictedApi("k", "v")}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--http-restricted-api=foo:a=b"], "unknown restricted api 'foo' "),
        (["--http-restricted-api=health,,:a=b"], "unknown restricted api '' "),
        (["--grpc-restricted-protocol=foo:a=b"], "unknown restricted protocol 'foo' "),
        (
            ["--http-restricted-api=health:a=b", "--http-restricted-api=health:c=d"],
            "restricted api 'health' can not be specified in multiple config groups",
        ),
        (
            ["--http-restricted-api=health"],
            "--http-restricted-api option format is '<config name>:<setting>=<value>'. Got health",
        ),
        (
            ["--http-restricted-api=health:a="],
            "--http-restricted-api option format is '<config name>:<setting>=<value>'. Got health:a=",
        ),
    ],
)
def test_malformed_restriction_is_refused(arguments: list[str], why: str) -> None:
    flag = arguments[0].partition("=")[0]
    assert refusal(*arguments) == f'Bad option: "{flag}".\n{why}'


def test_backend_settings_are_grouped_by_backend() -> None:
    options = parse(
        "--backend-config=python,shm-region-prefix-name=prefix0_",
        "--backend-config=python,stub-timeout-seconds=60",
        "--backend-config=default-max-batch-size=8",
    )
    assert options.backend_config == {
        "python": {"shm-region-prefix-name": "prefix0_", "stub-timeout-seconds": "60"},
        "": {"default-max-batch-size": "8"},
    }


def test_malformed_backend_setting_is_refused() -> None:
    assert refusal("--backend-config=foo").endswith(
        "--backend-config option format is '<backend name>,<setting>=<value>'. Got foo"
    )
    assert refusal("--backend-config=,foo=bar").endswith(
        "No backend specified. --backend-config option format is <backend name>,<setting>=<value> "
        "or <setting>=<value>. Got ,foo=bar"
    )


def test_cache_settings_belong_to_one_cache() -> None:
    assert parse("--cache-config=local,size=100").cache_config == CacheSettings("local", {"size": "100"})
    assert refusal("--cache-config=local,size=1", "--cache-config=redis,host=x") == (
        "error: creating server: Invalid argument - found multiple cache configurations, "
        "but only a single cache is currently supported"
    )
    assert "No cache specified." in refusal("--cache-config=local")
    assert "option format is '<cache name>,<setting>=<value>'" in refusal("--cache-config=local,size")


def test_old_cache_size_becomes_the_local_cache() -> None:
    result = parsed("--response-cache-byte-size=100")
    assert result.options.cache_config == CacheSettings("local", {"size": "100"})
    assert "'--cache-config=local,size=100'" in result.deprecations[0]


def test_old_and_new_cache_flags_exclude_each_other() -> None:
    message = refusal("--cache-config=local,size=1", "--response-cache-byte-size=1")
    assert message.startswith("Error: Incompatible flags --response-cache-byte-size and --cache-config both provided.")


def test_resources_have_a_count_and_perhaps_a_device() -> None:
    options = parse("--rate-limit-resource=R1:3", "--rate-limit-resource=r2:4:1")
    assert options.rate_limit_resource == (RateLimitResource("r1", 3), RateLimitResource("r2", 4, 1))
    assert refusal("--rate-limit-resource=foo").endswith(
        "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
        "'<resource_name>:<count>'. Got foo"
    )


def test_pairs_by_device() -> None:
    options = parse("--cuda-memory-pool-byte-size=0:64", "--cuda-memory-pool-byte-size=1:32")
    assert options.cuda_memory_pool_byte_size == {0: 64, 1: 32}
    assert parse("--model-load-gpu-limit=0:0.5").model_load_gpu_limit == {0: 0.5}
    assert "requires format <first>:<second>. Found: foo" in refusal("--cuda-memory-pool-byte-size=foo")
    assert "in range [0.0, 1.0], got 1.5" in refusal("--model-load-gpu-limit=0:1.5")
    assert parse("--sagemaker-safe-port-range=80-90").sagemaker_safe_port_range == (80, 90)


def test_host_policies_know_two_settings() -> None:
    assert parse("--host-policy=p,cpu-cores=0-3").host_policy == {"p": {"cpu-cores": "0-3"}}
    assert "Unsupported host policy setting 'foo'" in refusal("--host-policy=p,foo=bar")
    assert "'<policy name>,<setting>=<value>'" in refusal("--host-policy=numa-node=1")


def test_metrics_settings() -> None:
    settings = parse(
        "--metrics-config=summary_latencies=true", "--metrics-config=summary_quantiles=0.5:0.05,0.9:0.01"
    ).metrics_config
    assert settings.summary_latencies is True
    assert settings.counter_latencies is True
    assert settings.summary_quantiles == ((0.5, 0.05), (0.9, 0.01))
    assert refusal("--metrics-config=foo").endswith("--metrics-config option format is <setting>=<value>. Got foo")
    assert "summary_quantiles are pairs" in refusal("--metrics-config=summary_quantiles=0.5")
    for text, quantiles in (
        ("0.1:0.0.1,0.7:0.01,0.75:0.01", [(0.1, 0.0), (0.7, 0.01), (0.75, 0.01)]),
        (" 0.5: 0.1 , 5e-1:.05,", [(0.5, 0.1), (0.5, 0.05)]),
        ("0.9:0.1:0.2,0.5:0.1", [(0.9, 0.1), (0.5, 0.1)]),
    ):
        settings = parse(f"--metrics-config=summary_quantiles={text}").metrics_config
        assert list(settings.summary_quantiles) == quantiles


def test_unknown_metrics_setting_is_noticed() -> None:
    assert parse("--metrics-config=foo=bar").notices == ("--metrics-config has no setting 'foo'; ignored",)


def test_trace_settings_of_all_occurrences() -> None:
    settings = parse(
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=level=tensors",
        "--trace-config=rate=5",
        "--trace-config=count=7",
        "--trace-config=triton,file=t.json",
        "--trace-config=triton,log-frequency=3",
    ).trace_config
    assert (settings.mode, settings.level) == ("triton", ("TIMESTAMPS", "TENSORS"))
    assert (settings.rate, settings.count, settings.file, settings.log_frequency) == (5, 7, "t.json", 3)


def test_trace_settings_of_opentelemetry() -> None:
    settings = parse(
        "--trace-config=mode=opentelemetry",
        "--trace-config=opentelemetry,url=localhost:4318/v1/traces",
        "--trace-config=opentelemetry,resource=service.name=x",
    ).trace_config
    assert settings.mode == "opentelemetry"
    assert settings.opentelemetry["url"] == "localhost:4318/v1/traces"
    assert settings.opentelemetry["bsp_max_queue_size"] == "2048"
    assert settings.resource == {"service.name": "x"}


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("foo", 'Bad option: "--trace-config".\n--trace-config option format is'),
        ("rate=x", 'Bad option: "--trace-config rate".\nInvalid option value. Got x'),
        ("level=zzz", 'Bad option: "--trace-config level".\ninvalid value for trace level option: zzz'),
        ("mode=zzz", 'Bad option: "--trace-config mode".\ninvalid value for trace mode option: zzz.'),
        ("zzz,foo=bar", 'Bad option: "--trace-config".\ninvalid value for trace mode option: zzz.'),
        ("triton,file=", 'Bad option: "--trace-config".\n--trace-config option format is'),
    ],
)
def test_malformed_trace_setting_is_refused(argument: str, message: str) -> None:
    assert refusal(f"--trace-config={argument}").startswith(message)


def test_old_trace_flags_are_translated_and_warned_about() -> None:
    result = parsed("--trace-file=t", "--trace-level=TIMESTAMPS", "--trace-rate=2", "--trace-count=3")
    settings = result.options.trace_config
    assert (settings.file, settings.level, settings.rate, settings.count) == ("t", ("TIMESTAMPS",), 2, 3)
    assert len(result.deprecations) == 4
    assert result.deprecations[0] == (
        "Warning: '--trace-file' is deprecated; write '--trace-config=triton,file=t' instead."
    )
    assert refusal("--trace-level=FOO") == 'Bad option: "--trace-level".\ninvalid value for trace level option: foo'


def test_old_strictness_is_the_opposite_of_completion() -> None:
    assert parsed("--strict-model-config=true").options.disable_auto_complete_config is True
    result = parsed("--strict-model-config=false")
    assert result.options.disable_auto_complete_config is False
    assert "--strict-model-config" in result.deprecations[0]


def test_compat_is_a_list_of_known_words() -> None:
    assert parse().compat == ()
    assert parse("--compat=float16, Lengths,float16").compat == ("float16", "lengths")
    assert parse_options(["--model-repository=models"], {"TRIREME_COMPAT": "off"}).options.compat == ("off",)
    why = refusal("--compat=float16,fp8")
    assert why.startswith("Bad option: \"--compat\".\n'fp8' is no word of compat, which are off, cache, device_map, ")


def test_a_models_words_come_before_the_flag_unless_they_are_its_own() -> None:
    assert words_of_model("m", {}) is None
    assert words_of_model("m", {"compat": ""}) == ()
    assert words_of_model("m", {"compat": "off"}) == ("off",)
    assert words_of_model("m", {"compat": "v2"}) is None  # a model.py may mean something by it
    with pytest.raises(InvalidArgumentError, match="parameter 'compat' of model 'm': 'fp8' is no word of compat"):
        words_of_model("m", {"compat": "float16,fp8"})


@pytest.mark.parametrize(("word", "meant"), [("flaot16", "float16"), ("Float32", "float16"), ("numpy", "numpy1")])
def test_a_misspelt_word_of_compat_is_refused_with_the_one_that_was_meant(word: str, meant: str) -> None:
    told = rf"'{word.lower()}' is no word of compat, which are off, cache, .*; did you mean '{meant}.*'\?"
    assert re.search(told, refusal(f"--compat={word}"))
    with pytest.raises(InvalidArgumentError, match=f"parameter 'compat' of model 'm': {told}"):
        words_of_model("m", {"compat": word})
