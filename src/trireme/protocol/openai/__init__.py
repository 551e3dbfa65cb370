"""OpenAI's API: requests to values, and answers, stream chunks and errors to JSON."""
