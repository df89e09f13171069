"""
Rules about English sentences: words, verbs, clauses, persons, dates, slots, contradiction.

Pure and below every other room, so that extraction, commit, notes and recall read a
sentence by the same rules.
"""
