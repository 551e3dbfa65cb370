"""Tasks that take inputs of more than one kind."""

from __future__ import annotations

from collections.abc import Mapping

from trireme.backends.transformers.forms import TaskForm

MULTIMODAL_TASKS: Mapping[str, TaskForm] = {}
