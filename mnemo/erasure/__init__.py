"""What goes: the plan of an erasure over all rooms, and its rows."""
