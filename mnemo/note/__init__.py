"""What a note is: its values, the rules for its texts, and the rows that stores keep of it."""
