-- Ends listen. Locks nothing, needs no index.
unlisten {channel}
