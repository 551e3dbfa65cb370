"""Beside an engine of `trireme.llm` in a worker, whichever backend runs it: metrics, hung steps, slow clients,
requests that wait."""
