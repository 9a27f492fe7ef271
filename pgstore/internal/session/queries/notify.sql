-- Notifies the listeners of channel {channel}. Locks: that of notifying commits, for a moment. Needs no index.
notify {channel}
