"""Texts that are nearly configurations of models, and what reads them."""

from __future__ import annotations

import random

from trireme.config.autofill import autofill
from trireme.config.load import finalize_config
from trireme.config.message import ConfigMessage
from trireme.config.model_config import ModelConfig
from trireme.config.normalise import normalise
from trireme.config.text.json_parse import from_json
from trireme.config.text.pbtxt import parse_text
from trireme.config.validation.stages import validate_poll
from trireme.core.errors import ServingError

GOOD = (
    """name: "m" backend: "python" max_batch_size: 8
input [{ name: "IN" data_type: TYPE_FP32 dims: [ 3, -1 ] reshape { shape: [ -1 ] } }]
output [{ name: "OUT" data_type: TYPE_STRING dims: [ 1 ] label_filename: "l.txt" }]
instance_group [{ count: 2 kind: KIND_CPU passive: false rate_limiter { resources [{ name: "R" count: 4 }] } }]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 priority_levels: 3
  default_queue_policy { timeout_action: REJECT max_queue_size: 10 } priority_queue_policy { key: 1 value { } } }
version_policy { specific { versions: [ 1, 2 ] } } parameters { key: "a" value { string_value: "b" } }
model_warmup [{ name: "w" batch_size: 1 inputs { key: "IN" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } }]
""",
    """platform: "ensemble" max_batch_size: 1
input [{ name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }]
ensemble_scheduling { step [{ model_name: "a" model_version: -1 input_map { key: "IN" value: "IN" }
  output_map { key: "OUT" value: "t" } }, { model_name: "b" model_version: -1
  input_map { key: "IN" value: "t" } output_map { key: "OUT" value: "OUT" } }] }
""",
    """backend: "python" max_batch_size: 4
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] optional: true }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]
sequence_batching { max_sequence_idle_microseconds: 5000000 oldest { max_candidate_sequences: 4 }
  control_input [{ name: "START" control [{ kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }] }]
  state [{ input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ 1 ]
    initial_state { name: "s" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } }] }
model_transaction_policy { decoupled: true }
""",
)
PIECES = (
    "{", "}", "[", "]", ":", ",", '"', "'", "#", "\\", "-1", "0", "18446744073709551615", "99999999999999999999", "1e9",
    "nan", "inf", "TYPE_FP32", "TYPE_INVALID", "KIND_GPU", "KIND_MODEL", "name", "dims", "input", "count", "true",
    "priority_levels", "max_batch_size", "version_policy", "ensemble_scheduling", "\0", '"\\ud800"', "\U0001f600", "<",
    ">", ";", "/", "../x", '""', "[ ]", "{ }", "0x7f", "1.5f", "any [type.googleapis.com/x]",
)  # fmt: skip


def refuses_or_takes(source: random.Random) -> bool:
    """Reads one text as a load does; whether it is a configuration. Any error but a ServingError is the reader's."""
    if source.random() < 0.1:
        read, text = from_json, _mutated(source, '{"name":"m","max_batch_size":1,"input":[{"name":"IN","dims":[1]}]}')
    else:
        read, text = _from_text, _mutated(source, source.choice(GOOD))
    try:
        config = read(text)
        autofill(config, "m", [["model.py"]])
        normalise(config)
        validate_poll(config, includes_io=source.random() < 0.5)
        ModelConfig.from_message(finalize_config(config, 0))
    except ServingError:
        return False
    return True


def _from_text(text: str) -> ConfigMessage:
    return parse_text(text, "config.pbtxt")


def _mutated(source: random.Random, good: str) -> str:
    words = good.split(" ")
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        at = source.randrange(len(words))
        kind = source.randint(0, 4)
        if kind == 0:
            words[at] = source.choice(PIECES)
        elif kind == 1:
            words[at:at] = [source.choice(PIECES)] * source.choice((1, 1, 2, 200))
        elif kind == 2:
            del words[at : at + source.randint(1, 6)]
            words = words or ["x"]
        elif kind == 3:
            words[at:at] = words[at : at + source.randint(1, 12)]
        else:
            words[at] = words[at][: source.randint(0, 3)] + source.choice(PIECES)
    return " ".join(words)
