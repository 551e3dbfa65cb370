"""Nouns and ports: the values that walk through the rooms, and the interfaces at which rooms meet."""
