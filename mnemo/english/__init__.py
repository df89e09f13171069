"""What an English sentence says: forms of words, and where its verb stands. Pure."""
