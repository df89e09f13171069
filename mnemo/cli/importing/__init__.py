"""Import exports of other services: one reader per format, each a stream of records."""
