package pgtest

// ProcessesIn lets tests see what is left of a server.
var ProcessesIn = processesIn

// Folder is the temporary folder of a pooler.
func (b *PgBouncer) Folder() string { return b.path }
