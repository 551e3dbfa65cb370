"""`trireme build`: engine folders, and what there is to say about them."""
