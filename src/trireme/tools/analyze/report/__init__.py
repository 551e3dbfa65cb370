"""Tables, CSV files, plots and pages of what was measured."""
