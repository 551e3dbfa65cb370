"""Memory that clients share with the server: system regions and regions on a GPU."""
