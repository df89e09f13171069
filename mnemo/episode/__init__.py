"""What happened: steps, trajectories, and the acts a session's journal keeps. Pure values."""
