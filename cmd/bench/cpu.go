package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// usage is what a process and a server have used of the processors.
type usage struct {
	at          time.Time
	own, server time.Duration
	known       bool // whether server is known
}

// usageBefore reads it before something is measured: what it costs to read is not measured.
func (e *env) usageBefore() (u usage) {
	u.server, u.known = treeTime(e.serverPID)
	u.own, u.at = cpuTime(), time.Now()
	return u
}

// usageAfter reads it after something was measured.
func (e *env) usageAfter() usage {
	u := usage{at: time.Now(), own: cpuTime()}
	u.server, u.known = treeTime(e.serverPID)
	return u
}

// since returns the shares of one processor that were used since an earlier usage, in percent. The server's is NaN if
// it cannot be read here.
func (u usage) since(before usage) (own, server float64) {
	took := u.at.Sub(before.at).Seconds()
	own, server = 100*(u.own-before.own).Seconds()/took, math.NaN()
	if u.known && before.known {
		server = 100 * (u.server - before.server).Seconds() / took
	}
	return own, server
}

// ticksPerSecond is the unit of the times in /proc/PID/stat on Linux.
const ticksPerSecond = 100

// treeTime returns the processor time of a process, of its children, and of those that ended. It works on Linux.
func treeTime(pid int) (time.Duration, bool) {
	if pid == 0 {
		return 0, false
	}
	parent, err := readStat(strconv.Itoa(pid))
	if err != nil {
		return 0, false
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, false
	}
	total := parent.own + parent.ended
	for child := range strings.FieldsSeq(string(children)) {
		if s, err := readStat(child); err == nil { // otherwise it has ended
			total += s.own
		}
	}
	return time.Duration(total) * time.Second / ticksPerSecond, true
}

func readStat(pid string) (procStat, error) {
	content, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return procStat{}, err
	}
	return parseStat(string(content))
}

// procStat is a line of /proc/PID/stat. ended is the time of children that ended.
type procStat struct{ own, ended int64 }

func parseStat(text string) (procStat, error) {
	// The name of the program is in brackets, and may have spaces and brackets.
	_, tail, found := strings.Cut(text, " (")
	end := strings.LastIndex(tail, ") ")
	if !found || end < 0 {
		return procStat{}, fmt.Errorf("read the times of a process: %.60q has no name", text)
	}
	fields := strings.Fields(tail[end+2:])
	if len(fields) < 15 {
		return procStat{}, fmt.Errorf("read the times of a process: %d fields", len(fields))
	}
	numbers := make([]int64, 0, 4)
	for _, field := range fields[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("read the times of a process: %w", err)
		}
		numbers = append(numbers, n)
	}
	return procStat{numbers[0] + numbers[1], numbers[2] + numbers[3]}, nil
}

// heapInUse returns the memory that the program has in use, in bytes, after a garbage collection.
func heapInUse() float64 {
	runtime.GC()
	runtime.GC() // the first one runs finalizers, whose objects the second one frees
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// meter measures what events cost, from its start on.
type meter struct {
	env    *env
	before usage
	allocs uint64
}

func (e *env) startMeter() meter {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return meter{e, e.usageBefore(), m.Mallocs}
}

// perEvent returns the events per second, and the processor time (in microseconds) and the allocations of each.
func (m meter) perEvent(n int) figures {
	after := m.env.usageAfter()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	events, took := float64(n), after.at.Sub(m.before.at).Seconds()
	own, server := after.since(m.before)
	return figures{
		events / took, own / 100 * took / events * 1e6, server / 100 * took / events * 1e6,
		float64(mem.Mallocs-m.allocs) / events,
	}
}
