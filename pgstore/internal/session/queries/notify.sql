-- Notifies the session that listens there. Locks: that of notifying commits, for a moment. Needs no index.
notify {channel}
