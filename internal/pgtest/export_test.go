package pgtest

// ProcessesIn returns the processes in a server's folder.
var ProcessesIn = processesIn

// Folder returns the temporary folder of a pooler.
func (b *PgBouncer) Folder() string { return b.path }
