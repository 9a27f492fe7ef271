package pgtest

// ProcessesIn lets tests see what is left of a server.
var ProcessesIn = processesIn
