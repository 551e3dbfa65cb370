"""Services other than one that speaks the v2 protocol at an address: what each is asked, and how it is loaded."""
