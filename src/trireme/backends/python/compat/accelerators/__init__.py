"""Modules of an accelerator's software that stand in where there is none."""
