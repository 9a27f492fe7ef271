-- Commits a batch, and begins the next one of the same message. Index and lock: none.
commit and chain
