"""Text for a person's terminal: tables and colour."""
