-- Stops listening on the channel {channel}. Locks nothing, needs no index.
unlisten {channel}
