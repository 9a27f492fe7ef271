// Package supervisor starts, watches and restarts the actors of a runtime. It is part of the engine and promises no
// compatibility.
//
// It is authoritative for which actors run: one for each lease that the node asked it to run, and a feed for each of
// their tenants. It knows nothing else about leases. An actor that crashed or made no progress is restarted after a
// delay, under the same lease. A projection that crashed while it drained is reported as drained instead. A projection
// that is claimed anew starts when the actor of the earlier lease has ended.
//
// A gate holds back the actors that need the server while one probe finds it unreachable. To stop, the supervisor has
// the node release all leases, and then stops all actors. Each projection's machine decides about its failures.
//
// Start reading in supervisor.go. children.go has what the node asks for, restart.go crashes and the watchdog, gate.go
// outages.
package supervisor
