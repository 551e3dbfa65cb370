"""What must hold for a configuration, stage by stage."""
