"""The paths that cloud platforms call, as names for paths of the protocol."""
