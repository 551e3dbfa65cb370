"""`pb_utils.ModelConfig`: the configuration as `auto_complete_config` may complete it."""

from __future__ import annotations

from typing import Any


class ModelConfig:
    """Holds what the user wrote; what the model adds may fill gaps but not contradict it."""

    def __init__(self, model_config: str) -> None:
        import json

        self._model_config: dict[str, Any] = json.loads(model_config)

    def as_dict(self) -> dict[str, Any]:
        """The configuration itself, not a copy."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Raises ValueError where the configuration has a greater one."""
        config = self._model_config
        configured = config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config function for model "
                f"'{self._name}' specified max_batch_size {max_batch_size}"
            )
        config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Raises ValueError where the configuration schedules otherwise."""
        for choice in ("sequence_batching", "ensemble_scheduling"):
            if choice in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{choice}', but auto-complete-config function for "
                    f"model '{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, bool]) -> None:
        """Takes `decoupled`; raises ValueError for anything else, or where it is already set otherwise."""
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in auto-complete-config function for model '{self._name}' contains "
                "property other than 'decoupled'."
            )
        configured = self._model_config.get("model_transaction_policy")
        if configured is None:
            self._model_config["model_transaction_policy"] = transaction_policy_dict
            return
        if "decoupled" not in transaction_policy_dict:
            return
        present = configured.setdefault("decoupled", transaction_policy_dict["decoupled"])
        if present != transaction_policy_dict["decoupled"]:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name}', which is "
                f"already set to '{present}'."
            )

    def add_input(self, input: dict[str, Any]) -> None:
        """Adds an input, or fills in the one of that name."""
        self._add(
            "input", input, ("name", "data_type", "dims", "optional"), "'name', 'data_type', 'dims' and 'optional'"
        )

    def add_output(self, output: dict[str, Any]) -> None:
        """Adds an output, or fills in the one of that name."""
        self._add("output", output, ("name", "data_type", "dims"), "'name', 'data_type' and 'dims'")

    @property
    def _name(self) -> str:
        return str(self._model_config.get("name", ""))

    def _add(self, field: str, properties: dict[str, Any], allowed: tuple[str, ...], listed: str) -> None:
        where = f"in auto-complete-config function for model '{self._name}'"
        if "name" not in properties:
            raise ValueError(f"{field} {where} is missing 'name' property.")
        name = properties["name"]
        for required in ("data_type", "dims"):
            if required not in properties:
                raise ValueError(f"{field} '{name}' {where} is missing '{required}' property.")
        if any(key not in allowed for key in properties):
            raise ValueError(f"{field} '{name}' {where} contains property other than {listed}.")
        entries = self._model_config.setdefault(field, [])
        for entry in entries:
            if entry["name"] == name:
                self._fill(field, entry, properties)
                return
        entries.append({key: properties[key] for key in allowed if key in properties})

    def _fill(self, field: str, entry: dict[str, Any], properties: dict[str, Any]) -> None:
        name, data_type, dims = properties["name"], properties["data_type"], list(properties["dims"])
        if entry.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
            entry["data_type"] = data_type
        elif entry["data_type"] != data_type:
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {entry['data_type']} for "
                f"{field} '{name}', model provides {data_type}"
            )
        about = f"model '{self._name}', tensor '{name}': the model expects"
        if not entry.get("dims"):
            entry["dims"] = dims
        elif entry["dims"] != dims:
            raise ValueError(f"{about} dims {dims} but the model configuration specifies dims {entry['dims']}")
        if "optional" in properties:
            optional = entry.setdefault("optional", properties["optional"])
            if optional != properties["optional"]:
                raise ValueError(
                    f"{about} optional {properties['optional']} but the model configuration specifies optional "
                    f"{optional}"
                )
