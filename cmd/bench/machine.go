package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// machine describes where the figures were taken.
type machine struct {
	OS         string `json:"os"`
	Arch       string `json:"arch"`
	Processor  string `json:"processor,omitempty"`
	Processors int    `json:"processors"`
	MemoryMiB  int    `json:"memoryMiB,omitempty"`
}

func thisMachine() machine {
	m := machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Processors: runtime.GOMAXPROCS(0)}
	m.Processor = procField("/proc/cpuinfo", "model name")
	var kib int
	if _, err := fmt.Sscanf(procField("/proc/meminfo", "MemTotal"), "%d kB", &kib); err == nil {
		m.MemoryMiB = kib / 1024
	}
	return m
}

// procField returns the first value of a field in a file of Linux, empty elsewhere.
func procField(path, name string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(content) {
		key, value, found := strings.Cut(string(line), ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (m machine) String() string {
	text := fmt.Sprintf("%d processors", m.Processors)
	if m.Processor != "" {
		text += " (" + m.Processor + ")"
	}
	if m.MemoryMiB > 0 {
		text += fmt.Sprintf(", %d GiB", (m.MemoryMiB+512)/1024)
	}
	return text + ", " + m.OS + "/" + m.Arch
}

// reported are the modules whose versions are reported.
var reported = []string{
	"github.com/jackc/pgx/v5", "modernc.org/sqlite", "github.com/riverqueue/river",
	"github.com/ThreeDotsLabs/watermill-sql/v3",
}

// buildVersions returns the versions of Go, of millrace, and of the modules that are compared.
func buildVersions() map[string]string {
	versions := map[string]string{"go": runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, module := range info.Deps {
		for _, name := range reported {
			if module.Path == name {
				versions[name] = module.Version
			}
		}
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			versions["millrace"] = setting.Value
		}
	}
	return versions
}

// serverSettings are the settings of PostgreSQL that the figures depend on.
var serverSettings = []string{
	"server_version", "fsync", "synchronous_commit", "shared_buffers", "max_connections", "wal_sync_method",
	"full_page_writes",
}

// readServerSettings returns the settings by name.
func readServerSettings(ctx context.Context, pool *pgxpool.Pool) (map[string]string, error) {
	settings := make(map[string]string)
	for _, name := range serverSettings {
		var value string
		if err := pool.QueryRow(ctx, "select current_setting($1)", name).Scan(&value); err != nil {
			return nil, fmt.Errorf("read a setting of the server: %w", err)
		}
		settings[name] = value
	}
	return settings, nil
}
