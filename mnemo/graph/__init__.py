"""What is remembered: nodes, edges, metadata and changesets. Pure values, no await."""
