"""What was said, as values: messages, what was derived from them, and how to choose among them."""
