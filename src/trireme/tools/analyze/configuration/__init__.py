"""Configurations of a model that differ in what is searched, and how they are written."""
