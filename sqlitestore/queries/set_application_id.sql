-- Marks the file as one of this library. Lock: that of the file's writer. Needs no index.
pragma application_id = {id}
