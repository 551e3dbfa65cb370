"""The rows of the table of models, and what stands in them."""

from __future__ import annotations

import json

from browser import Page


def row_of(model: str) -> str:
    """An expression for the row of a model."""
    wanted = json.dumps(model)
    return (
        f"[...document.querySelectorAll('tbody tr')].find((row) => row.querySelector('.name').textContent === {wanted})"
    )


def cell(page: Page, model: str, label: str) -> str:
    return str(page.run(f"{row_of(model)}.querySelector('[data-label={json.dumps(label)}]').textContent"))
