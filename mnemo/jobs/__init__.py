"""Work that waits: jobs, and the leases of their owners."""
