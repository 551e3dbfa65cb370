"""Whose turn it is where more sequences are to be written than fit."""
