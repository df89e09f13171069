"""Who answers: embedders and chat models."""
