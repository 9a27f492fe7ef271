// Package chaos breaks a running fleet of nodes and checks that no event is lost, doubled, reordered or wrongly parked.
// The package has only tests.
//
// # What runs
//
// A cluster (cluster_test.go) is a database, three nodes and a spare one, and eight writers. A node (node_test.go) is a
// process: this test binary, executed again. It reaches the server through a proxy of its own (proxy_test.go). Each
// node runs five projections (projections_test.go) for each of three tenants, and of a fourth that comes and goes
// (guest_test.go). The writers (writers_test.go) append from the test process. Most tests share one private PostgreSQL
// server; others have a primary, a standby and poolers of their own (servers_test.go).
//
// # What breaks it
//
// A fault (fault_test.go) breaks something and repairs it. TestChaosFault runs each fault alone and then checks what
// the library must do about it. TestChaosSchedule and TestChaosFixedSchedule run random schedules, in which faults
// overlap (schedule_test.go).
//
//	fault_process_test.go      kills and freezes processes, at chosen moments
//	fault_network_test.go      disconnects a node, or degrades its network
//	fault_server_test.go       kills, restarts and fills up PostgreSQL; ends sessions
//	fault_failover_test.go     loses commits: a failover, a crash; a standby that lags; poolers
//	fault_data_test.go         open and prepared transactions, locks
//	fault_handler_test.go      handlers meet errors of the server
//	fault_deadletters_test.go  failing events, replays and discards
//	fault_tenants_test.go      creates, archives, pauses and drops tenants
//	fault_split_test.go        changes the number of partitions of projections
//
// # What is checked
//
//   - Events (checker_test.go): handlers record the events that they are given in a table without a unique index. At
//     the end it is compared with what was committed, in number and order. Appends that a writer saw succeed must
//     exist, and those that were refused must have met an archive or a drop (closures_test.go). Once a projection has
//     had partitions, only the order of each stream counts.
//   - Leases (ownership_test.go): a trigger logs each change of an owner. The epoch must rise, and only a node that a
//     fault has struck may lose a lease without releasing it.
//   - Dead letters (deadletters_test.go): the projection shipments parks failing events and replays them by itself. In
//     every snapshot its dead letters, commands and read model must agree over all partitions, and at the end nothing
//     may be left.
//   - Tenants (guest_test.go): before its drop the guest is checked as the other tenants are at the end. Afterwards
//     nothing of it may be left, and its next life must not meet anything of the last.
//   - Nodes (nodelog_test.go): how processes ended, and that none logged an error, a panic or a data race.
//
// Each checker is checked itself. The *_self_test.go files feed checkers with wrong data. TestChaosNoticesWhatIsBroken
// (broken_test.go) disables one protection of the library at a time and requires the right finding.
//
// # How to reproduce a failure
//
// A failed test prints the command that repeats it, the schedule, the faults that struck each process, and the logs.
// The seed of a random schedule determines its faults and what the writers append. The interleaving of processes still
// varies, so repeat it a few times:
//
//	make chaos CHAOS=2m SEED=123
//
// # How to add a fault
//
// Add a fault to the list of its file; the comments of type fault explain the fields. strike breaks and repairs; check,
// if set, verifies what the library must do when nothing else goes wrong; weight puts the fault into the random
// schedules. Run it with go test -race ./tests/chaos -run 'TestChaosFault/its-name'.
package chaos
