"""How fast a read model is made anew, beside other ways to make the same table of the same events."""
