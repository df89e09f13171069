"""What is known: the rows of nodes and edges, and how a changeset is applied."""
