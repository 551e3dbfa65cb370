"""The commands people type, one file each."""
