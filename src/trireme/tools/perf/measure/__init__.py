"""From finished requests to numbers: windows, stability, statistics of the server."""
