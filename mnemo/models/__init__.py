"""Who answers: embedders that need no network. Import each from its own module."""
