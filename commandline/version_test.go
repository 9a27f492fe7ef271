package commandline

import (
	"runtime/debug"
	"testing"
)

// A program of a user has a version and a commit of its own.
func TestVersionIsThatOfMillrace(t *testing.T) {
	t.Parallel()
	commit := []debug.BuildSetting{{Key: "vcs.revision", Value: "c0ffee"}}
	used := func(m debug.Module) []*debug.Module {
		return []*debug.Module{{Path: "example.com/other", Version: "v9.0.0"}, &m}
	}
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want versionJSON
	}{
		"millrace itself": {
			debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}, Settings: commit},
			versionJSON{Version: "v1.2.3", Commit: "c0ffee"},
		},
		"a program": {debug.BuildInfo{Main: debug.Module{Path: "example.com/shop", Version: "v7.0.0"}, Settings: commit,
			Deps: used(debug.Module{Path: module, Version: "v1.2.3"})}, versionJSON{Version: "v1.2.3"}},
		"a program with another copy": {debug.BuildInfo{Main: debug.Module{Path: "example.com/shop"},
			Deps: used(debug.Module{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "../millrace"}})},
			versionJSON{Version: "(devel)"}},
	} {
		if got := versionOf(&c.info); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
