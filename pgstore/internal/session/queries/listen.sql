-- Listens on a channel of its own. Locks nothing, needs no index.
listen {channel}
