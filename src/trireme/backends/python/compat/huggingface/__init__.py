"""Repairs for files that were written for other releases of the Hugging Face libraries."""
