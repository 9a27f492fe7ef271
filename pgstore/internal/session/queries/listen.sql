-- Listens on the channel {channel}. Locks nothing, needs no index.
listen {channel}
