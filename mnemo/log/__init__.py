"""What was said, seen and done: its rows, and the rules over them."""
