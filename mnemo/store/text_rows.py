"""The rows of the full text, and what each is the text of: a step's half, a message, a snapshot."""

LEAN = """
    coalesce(p.at, m.at, n.at), coalesce(s.id, t.id), coalesce(2 * p.ordinal + ($row & 1),
    m.seq, n.from_seq), coalesce(t.ttl_s, q.ttl_s), coalesce(m.recorded_at, o.recorded_at, (
        SELECT o.recorded_at FROM messages o WHERE o.thread = n.thread
        AND o.seq BETWEEN n.from_seq AND n.to_seq ORDER BY o.seq LIMIT 1)),
    coalesce(q.id, ''), coalesce(o.seq, -1), o.no
"""
"""What ``Lean`` has behind row and relevance: enough to rank a row, and to see if it lives."""
BASE = """
LEFT JOIN steps p ON p.ordinal = CASE WHEN $row & 3 < 2 THEN $row >> 2 END
LEFT JOIN sessions s ON s.no = p.session
LEFT JOIN messages m ON m.no = CASE $row & 3 WHEN 2 THEN $row >> 2 END
LEFT JOIN snapshots n ON n.no = CASE $row & 3 WHEN 3 THEN $row >> 2 END
LEFT JOIN threads t ON t.no = coalesce(m.thread, n.thread)
LEFT JOIN threads q ON q.repo = p.repo AND q.id = p.thread
LEFT JOIN messages o ON o.thread = q.no AND o.id = p.message
"""
"""What the rows of a full text *f* are the text of; *o* is the message that a step repeats."""
