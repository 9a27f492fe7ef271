-- Listens on the quoted channel {channel}. Locks nothing. Needs no index.
listen {channel}
