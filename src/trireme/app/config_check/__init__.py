"""What is wrong with model folders, all of it, found without running anything of theirs."""
