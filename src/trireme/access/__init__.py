"""Who may do what: keys and their API groups, quotas, the access log."""
