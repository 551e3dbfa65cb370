"""OpenAI's API on the HTTP port."""
