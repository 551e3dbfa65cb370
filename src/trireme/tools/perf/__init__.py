"""Loads a server as clients do and reports throughput and latency, with the flags and the output of perf_analyzer."""
