"""The command line of the server: grammar, plain values, conflicts, and what each mistake is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.config.options.option import Option, OptionError, OptionStatus
from trireme.config.options.parser import parse_options
from trireme.config.options.scanner import HelpRequested
from trireme.config.options.server import ServerOptions, server_options

REPOSITORY = "--model-repository=models"


def parse(*arguments: str, environ: Mapping[str, str] | None = None) -> ServerOptions:
    return parse_options([REPOSITORY, *arguments], environ or {}).options


def refusal(*arguments: str, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(OptionError) as caught:
        parse(*arguments, environ=environ)
    return str(caught.value)


def test_without_flags_every_option_has_its_default() -> None:
    options = parse()
    assert options.model_repository == ("models",)
    for entry in server_options():
        if entry.flag != "model-repository":
            assert getattr(options, entry.field_name) == entry.default
    assert options.notices == ()


def test_value_follows_an_equals_sign_or_a_blank() -> None:
    assert parse("--http-port=9000").http_port == 9000
    assert parse("--http-port", "9000").http_port == 9000


def test_old_name_of_the_repository_is_an_alias() -> None:
    options = parse_options(["--model-store", "a/", "--model-repository=b"], {}).options
    assert options.model_repository == ("a/", "b")


def test_the_number_of_front_end_processes_can_be_left_to_the_server() -> None:
    assert parse("--frontend-processes=auto").frontend_processes is None
    assert parse("--frontend-processes=3").frontend_processes == 3
    assert parse().frontend_processes is None
    assert parse().frontend_leases
    assert parse(environ={"TRIREME_FRONTEND_PROCESSES": "auto"}).frontend_processes is None
    assert "value must be at least 1. Got 0" in refusal("--frontend-processes=0")
    assert "Invalid option value. Got many" in refusal("--frontend-processes=many")


def test_last_occurrence_of_a_single_option_wins() -> None:
    assert parse("--http-port=1", "--http-port=2").http_port == 2


def test_beginning_that_only_one_option_has_stands_for_it() -> None:
    assert parse("--exit-t=5").exit_timeout_secs == 5


def test_beginning_that_two_options_have_is_ambiguous() -> None:
    message = refusal("--model-con=none")
    assert message.startswith("tritonserver: option '--model-con' is ambiguous; possibilities:")
    assert "'--model-control-mode'" in message
    assert "'--model-config-name'" in message


def test_full_name_wins_over_longer_names_that_begin_with_it() -> None:
    assert parse("--rate-limit=off").rate_limit == "off"


def test_our_own_options_make_no_abbreviation_ambiguous() -> None:
    assert parse("--d").disable_auto_complete_config is True
    assert parse("--debug=adder").debug == "adder"


def test_watch_is_a_short_way_to_poll() -> None:
    found = parse("--watch")
    assert (found.watch, found.model_control_mode, found.repository_poll_secs) == (True, "poll", 1)
    assert parse("--watch", "--repository-poll-secs=5").repository_poll_secs == 5
    assert parse("--watch", "--model-control-mode=poll").model_control_mode == "poll"
    with pytest.raises(OptionError, match="--watch is --model-control-mode=poll, and explicit was asked for"):
        parse("--watch", "--model-control-mode=explicit")


def test_unknown_flag_is_refused_with_the_nearest_name() -> None:
    message = refusal("--model-repositry=x")
    assert message == "tritonserver: unrecognized option '--model-repositry'. Did you mean '--model-repository'?"


def test_word_that_is_no_option_is_unexpected() -> None:
    assert refusal("extra") == "Unexpected argument: extra"
    assert refusal("--", "--http-port=1") == "Unexpected argument: --http-port=1"


def test_short_options_do_not_exist() -> None:
    assert refusal("-m").startswith("tritonserver: invalid option -- 'm'")


def test_missing_value_is_refused() -> None:
    assert refusal("--allow-http") == "tritonserver: option '--allow-http' requires an argument"


def test_bare_flag_takes_no_value() -> None:
    message = refusal("--disable-auto-complete-config=true")
    assert message == "tritonserver: option '--disable-auto-complete-config' doesn't allow an argument"


@pytest.mark.parametrize("word", ["--help", "--he"])
def test_help_is_a_request_of_its_own(word: str) -> None:
    with pytest.raises(HelpRequested):
        parse(word)


@pytest.mark.parametrize("text", ["true", "TRUE", "On", "1"])
def test_words_for_true(text: str) -> None:
    assert parse(f"--strict-readiness={text}").strict_readiness is True


@pytest.mark.parametrize("text", ["false", "False", "OFF", "0"])
def test_words_for_false(text: str) -> None:
    assert parse(f"--strict-readiness={text}").strict_readiness is False


def test_other_words_are_no_boolean() -> None:
    assert refusal("--allow-http=maybe") == 'Bad option: "--allow-http".\ninvalid value for bool option: maybe'


@pytest.mark.parametrize("text", ["abc", "8000x", "", "1.5", " 1"])
def test_what_is_no_number_is_refused(text: str) -> None:
    assert refusal(f"--http-port={text}") == f'Bad option: "--http-port".\nInvalid option value. Got {text}'


@pytest.mark.parametrize(
    "argument",
    [
        "--http-port=65536",
        "--http-port=-1",
        "--http-max-input-size=0",
        "--model-load-thread-count=0",
        "--grpc-infer-thread-count=1",
        "--grpc-infer-thread-count=129",
        "--grpc-max-response-pool-size=0",
        "--exit-timeout-secs=-1",
        "--metrics-interval-ms=nan",
    ],
)
def test_number_out_of_its_range_is_refused(argument: str) -> None:
    flag = argument.partition("=")[0]
    assert refusal(argument).startswith(f'Bad option: "{flag}".\n')


@pytest.mark.parametrize(
    ("argument", "why"),
    [
        ("--log-format=zz", "invalid argument for --log-format"),
        ("--model-control-mode=zz", "invalid argument for --model-control-mode"),
        ("--rate-limit=zz", "invalid argument for --rate-limit"),
        ("--model-config-name=", "Error: empty argument for --model-config-name"),
        ("--http-header-forward-pattern=(", "invalid regular expression '('"),
    ],
)
def test_value_that_is_none_of_the_choices_is_refused(argument: str, why: str) -> None:
    assert why in refusal(argument)


def test_verbosity_is_a_number_or_a_boolean() -> None:
    assert parse("--log-verbose=2").log_verbose == 2
    assert parse("--log-verbose=true").log_verbose == 1
    assert parse("--log-verbose=off").log_verbose == 0
    assert "Got x" in refusal("--log-verbose=x")


def test_start_up_models_need_explicit_control() -> None:
    assert refusal("--load-model=a") == (
        "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well."
    )
    assert parse("--model-control-mode=explicit", "--load-model=a", "--load-model=b").load_model == ("a", "b")


def test_wildcard_stands_alone() -> None:
    assert parse("--model-control-mode=explicit", "--load-model=*").load_model == ("*",)
    assert "Wildcard model name '*' must be the ONLY startup model" in refusal(
        "--model-control-mode=explicit", "--load-model=*", "--load-model=a"
    )


@pytest.mark.parametrize(
    ("arguments", "names", "place"),
    [
        (["--http-port=8001"], "HTTP requests and GRPC requests", "0.0.0.0:8001"),
        (["--http-port=8002"], "HTTP requests and metrics requests", "0.0.0.0:8002"),
        (["--grpc-port=8002"], "GRPC requests and metrics requests", "0.0.0.0:8002"),
    ],
)
def test_two_services_at_one_place_are_refused(arguments: list[str], names: str, place: str) -> None:
    assert refusal(*arguments) == f"The server cannot listen to {names} at the same address and port {place}"


@pytest.mark.parametrize(
    ("arguments", "service"),
    [
        ([], "HTTP requests at port 8000"),
        (["--http-port=23000"], "GRPC requests at port 8001"),
        (["--allow-http=false", "--allow-grpc=false", "--metrics-port=22999"], "metrics requests at port 22999"),
        (["--allow-http=false", "--grpc-port=23999"], "metrics requests at port 8002"),
    ],
)
def test_other_services_keep_to_the_ports_that_sagemaker_leaves_them(arguments: list[str], service: str) -> None:
    given = ("--allow-sagemaker=true", "--sagemaker-safe-port-range=23000-23999", *arguments)
    assert refusal(*given) == f"The server cannot listen to {service}, allowed port range is [23000, 23999]"


def test_sagemakers_own_port_lies_beside_the_range_that_it_leaves_to_others() -> None:
    off = ("--allow-http=false", "--allow-grpc=false", "--allow-metrics=false")
    given = parse("--allow-sagemaker=true", "--sagemaker-safe-port-range=23000-23999", *off)
    assert given.sagemaker_port == 8080
    open_ports = ("--http-port=23000", "--grpc-port=23001", "--metrics-port=23999")
    assert parse("--allow-sagemaker=true", "--sagemaker-safe-port-range=23000-23999", *open_ports).http_port == 23000
    assert parse("--sagemaker-safe-port-range=23000-23999").http_port == 8000


def test_services_that_are_off_or_elsewhere_do_not_collide() -> None:
    assert parse("--http-port=8001", "--allow-grpc=false").http_port == 8001
    assert parse("--http-port=8001", "--grpc-address=127.0.0.1").http_port == 8001
    assert parse("--http-port=0", "--grpc-port=0", "--metrics-port=0").metrics_port == 0


def test_metrics_listen_where_http_does_unless_told_otherwise() -> None:
    assert parse("--http-address=127.0.0.1").effective_metrics_address == "127.0.0.1"
    assert parse("--metrics-address=::1").effective_metrics_address == "::1"


def test_option_without_effect_leaves_a_notice_with_its_reason() -> None:
    (notice,) = parse("--http-thread-count=16").notices
    assert notice.startswith("--http-thread-count has no effect: one event loop")


def test_option_without_effect_at_its_default_leaves_no_notice() -> None:
    assert parse("--rate-limit=off", "--allow-client-shm=false", "--http-thread-count=8").notices == ()


def test_refused_option_stops_the_start_and_its_default_does_not() -> None:
    for entry in _entries(OptionStatus.REFUSED):
        assert entry.reason in refusal(f"--{entry.flag}=true")
        parse(f"--{entry.flag}=false")


def _entries(status: OptionStatus) -> list[Option]:
    return [entry for entry in server_options() if entry.status is status]


def test_missing_certificate_is_named() -> None:
    assert refusal("--grpc-server-cert=/nowhere/cert.pem") == (
        "error: --grpc-server-cert: there is no file '/nowhere/cert.pem'"
    )


def test_encryption_needs_its_files() -> None:
    assert refusal("--grpc-use-ssl=true") == "error: TLS needs --grpc-server-cert"
    own = f"--grpc-server-cert={__file__}", f"--grpc-server-key={__file__}"
    assert parse("--grpc-use-ssl=true", *own).grpc_use_ssl is True
    assert refusal("--grpc-use-ssl-mutual=true", *own) == "error: TLS needs --grpc-root-cert"


@pytest.mark.parametrize("service", ["http", "metrics"])
def test_encryption_of_every_port_needs_its_files(service: str) -> None:
    assert refusal(f"--{service}-use-ssl=true") == f"error: TLS needs --{service}-server-cert"
    own = f"--{service}-server-cert={__file__}", f"--{service}-server-key={__file__}"
    parse(f"--{service}-use-ssl=true", *own)
    assert refusal(f"--{service}-use-ssl-mutual=true", *own) == f"error: TLS needs --{service}-root-cert"
    missing = refusal(f"--{service}-root-cert=/nowhere/root.pem")
    assert missing == f"error: --{service}-root-cert: there is no file '/nowhere/root.pem'"


def test_metrics_take_the_certificates_of_http() -> None:
    own = f"--http-server-cert={__file__}", f"--http-server-key={__file__}"
    assert parse("--metrics-use-ssl=true", *own).metrics_use_ssl is True


@pytest.mark.parametrize("name", ["X Key", "", "X:Key"])
def test_a_header_for_keys_needs_a_name(name: str) -> None:
    assert f"'{name}' is not the name of a header" in refusal(f"--api-key-header={name}")


def test_environment_stands_in_for_flags_and_flags_win() -> None:
    environ = {"TRIREME_HTTP_PORT": "9000", "TRIREME_LOG_VERBOSE": "1"}
    options = parse("--http-port=9001", environ=environ)
    assert (options.http_port, options.log_verbose) == (9001, 1)


def test_repeated_option_in_the_environment_is_split_like_a_shell_line() -> None:
    environ = {"TRIREME_MODEL_REPOSITORY": "a 'b c'", "TRIREME_DISABLE_AUTO_COMPLETE_CONFIG": "true"}
    options = parse_options([], environ).options
    assert options.model_repository == ("a", "b c")
    assert options.disable_auto_complete_config is True


def test_bad_value_in_the_environment_names_the_variable() -> None:
    message = refusal(environ={"TRIREME_HTTP_PORT": "x"})
    assert message == (
        'Bad option: "--http-port".\nInvalid option value. Got x (from the environment variable TRIREME_HTTP_PORT)'
    )


def test_port_variable_that_kubernetes_wrote_is_not_ours() -> None:
    assert parse(environ={"TRIREME_HTTP_PORT": "tcp://10.0.0.1:80"}).http_port == 8000


@given(st.lists(st.text(max_size=30), max_size=6))
def test_no_command_line_does_anything_but_parse_or_explain(arguments: list[str]) -> None:
    try:
        parse_options(arguments, {})
    except (OptionError, HelpRequested):
        pass


@given(st.sampled_from(server_options()), st.text(max_size=20))
def test_no_value_does_anything_but_parse_or_explain(entry: Option, text: str) -> None:
    try:
        parse_options([f"--{entry.flag}={text}"], {})
    except OptionError:
        pass


def test_limits_are_counts_sizes_and_seconds() -> None:
    options = parse("--max-inflight-bytes=2GiB", "--http-max-binary-size=512MB", "--connection-idle-timeout=0.5")
    assert (options.max_inflight_bytes, options.http_max_binary_size) == (2 << 30, 512_000_000)
    assert options.connection_idle_timeout == 0.5
    assert options.max_connection_inflight_bytes is None
    assert "expects bytes" in refusal("--max-connection-inflight-bytes=much")
    assert "expects seconds" in refusal("--request-header-timeout=-1")
    for flag in ("max-connections", "max-connections-per-address", "max-queue-size", "max-shared-memory-regions"):
        assert "value must be at least 0" in refusal(f"--{flag}=-1")


def test_files_for_tls_that_nothing_is_served_with_are_told_of(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    certificate.write_text("")
    for service, served in (("http", "HTTP is"), ("grpc", "gRPC is"), ("metrics", "metrics are")):
        files = [f"--{service}-{name}={certificate}" for name in ("server-cert", "server-key")]
        (notice,) = parse(*files).notices
        assert notice == (
            f"--{service}-server-cert and --{service}-server-key without --{service}-use-ssl=true: "
            f"{served} served without TLS"
        )
        assert parse(*files, f"--{service}-use-ssl=true").notices == ()
    files = [f"--http-{name}={certificate}" for name in ("server-cert", "server-key")]
    assert parse(*files, "--metrics-use-ssl=true").notices == ()


@pytest.mark.parametrize("digits", [400, 5000])
def test_numbers_that_no_clock_has_are_refused(digits: int) -> None:
    for flag in ("exit-timeout-secs", "http-max-input-size", "model-load-retry-count"):
        assert "value is out of range. Got 999999999999999999..." in refusal(f"--{flag}={'9' * digits}")
    for flag in ("exit-timeout-secs", "repository-poll-secs"):
        assert "value must be at most 2147483647. Got 2147483648" in refusal(f"--{flag}=2147483648")
