"""What of a model's own auto-completed configuration is taken over, and what may change without a reload."""

from __future__ import annotations

import logging

from trireme.config.message import ConfigMessage, copy_of
from trireme.config.text.json_parse import from_json
from trireme.core.errors import InvalidArgumentError

log = logging.getLogger(__name__)

COMPLETED_FIELDS = (
    "max_batch_size",
    "input",
    "output",
    "dynamic_batching",
    "sequence_batching",
    "model_transaction_policy",
)
"""The fields a model may complete, as in Triton; everything else stays as the server read it."""

_IN_PLACE_FIELDS = ("instance_group", "version_policy")


def merge_completed(message: ConfigMessage, completed_json: str) -> ConfigMessage:
    """A copy of `message` with the completed fields of the model's answer; other differences are warned of."""
    try:
        completed = from_json(completed_json)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            f"auto_complete_config of model '{message.name}' returned an invalid configuration: {error.message}"
        ) from None
    merged = copy_of(message)
    for field_name in COMPLETED_FIELDS:
        merged.ClearField(field_name)
    for field, value in completed.ListFields():
        if field.name in COMPLETED_FIELDS:
            _put(merged, field.name, value)
    for field_name in ignored_changes(message, completed):
        log.warning(
            "auto_complete_config of model '%s' changed '%s', which only its configuration can: ignored",
            message.name,
            field_name,
        )
    return merged


def ignored_changes(message: ConfigMessage, completed: ConfigMessage) -> list[str]:
    """The fields that differ though a model may not complete them."""
    return [
        field.name
        for field in message.DESCRIPTOR.fields
        if field.name not in COMPLETED_FIELDS and not _is_same_field(message, completed, field.name)
    ]


def instance_only_change(old: ConfigMessage, new: ConfigMessage) -> bool:
    """Whether nothing but `instance_group` and `version_policy` differs, so that instances can change in place.

    Compare configurations of the same stage: both as read, or both finalised. Equal ones count as true.
    """
    ours, theirs = copy_of(old), copy_of(new)
    for field_name in _IN_PLACE_FIELDS:
        ours.ClearField(field_name)
        theirs.ClearField(field_name)
    return bool(ours == theirs)


def _put(message: ConfigMessage, field_name: str, value: object) -> None:
    field = message.DESCRIPTOR.fields_by_name[field_name]
    if field.is_repeated:
        getattr(message, field_name).extend(value)
    elif field.message_type is not None:
        getattr(message, field_name).CopyFrom(value)
    else:
        setattr(message, field_name, value)


def _is_same_field(left: ConfigMessage, right: ConfigMessage, field_name: str) -> bool:
    field = left.DESCRIPTOR.fields_by_name[field_name]
    if (
        field.message_type is not None
        and not field.is_repeated
        and left.HasField(field_name) != right.HasField(field_name)
    ):
        return False
    return bool(getattr(left, field_name) == getattr(right, field_name))
