-- Records where command ?1 is: ?2 the stream that is being replayed, ?3 the position up to which all were tried, ?4 the
-- dead letter whose replay begins (null: as before). Index: the primary key. Lock: that of the file's writer.
update millrace_commands set current_stream = ?2, after_position = ?3, current_dead_letter = coalesce(?4, current_dead_letter) where id = ?1
