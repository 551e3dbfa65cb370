"""The tools around the server: they write files for it or speak its protocol, and are no part of a request's way."""
