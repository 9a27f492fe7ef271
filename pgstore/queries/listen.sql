-- Listens on a channel that no one else uses. Locks nothing, needs no index.
listen {channel}
