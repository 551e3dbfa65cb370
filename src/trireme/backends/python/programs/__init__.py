"""The scripts that worker processes and the fork server begin with; a folder of their own so that nothing shadows."""
