-- Commits a batch that is one message. Index and lock: none.
commit and no chain
