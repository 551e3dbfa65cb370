"""Requests that run as requests to other models."""
