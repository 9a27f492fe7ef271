package main

import (
	"slices"
	"strings"
	"testing"
)

const lines = `{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"a","Test":"TestGood","Output":"    a_test.go:1: chatter\n"}
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}
`

const failures = `{"Action":"output","Package":"b","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"b","Test":"TestBad/sub","Output":"    b_test.go:1: it broke\n"}
{"Action":"output","Package":"b","Test":"TestBad/sub","Output":"    --- FAIL: TestBad/sub (0.10s)\n"}
{"Action":"fail","Package":"b","Test":"TestBad/sub"}
{"Action":"output","Package":"b","Test":"TestBad","Output":"--- FAIL: TestBad (0.10s)\n"}
{"Action":"fail","Package":"b","Test":"TestBad"}
{"Action":"output","Package":"b","Output":"FAIL\n"}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.1s\n"}
{"Action":"fail","Package":"b"}
{"Action":"output","Package":"c","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"c","Output":"FAIL\tc\t9.9s\n"}
{"Action":"fail","Package":"c"}
{"ImportPath":"d [d.test]","Action":"build-output","Output":"# d\nd.go:1: undefined: x\n"}
{"ImportPath":"d [d.test]","Action":"build-fail"}
`

func TestFailuresAreRepeatedAtTheEnd(t *testing.T) {
	t.Parallel()
	var out, end strings.Builder
	s := newSummary(&out)
	err := s.read(strings.NewReader(failures + lines))
	if err != nil {
		t.Fatal(err)
	}
	if want := `    b_test.go:1: it broke
    --- FAIL: TestBad/sub (0.10s)
--- FAIL: TestBad (0.10s)
FAIL
FAIL	b	0.1s
panic: test timed out
FAIL	c	9.9s
# d
d.go:1: undefined: x
ok  	a	0.1s
`; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	s.print(&end)
	if want := `
FAILED: b TestBad/sub
    b_test.go:1: it broke
    --- FAIL: TestBad/sub (0.10s)

FAILED: c TestHangs
    panic: test timed out

FAILED: d [d.test]
    # d
    d.go:1: undefined: x
`; end.String() != want {
		t.Errorf("got\n%s\nwant\n%s", end.String(), want)
	}
}

func TestLongOutputIsCutAtTheEnd(t *testing.T) {
	t.Parallel()
	var out, end strings.Builder
	long := strings.Repeat(`{"Action":"output","Package":"b","Test":"TestBad","Output":"`+
		strings.Repeat("x", 10*longestLine)+`\n"}`, 3*mostLines)
	s := newSummary(&out)
	err := s.read(strings.NewReader(long + `{"Action":"fail","Package":"b","Test":"TestBad"}`))
	if err != nil {
		t.Fatal(err)
	}
	s.print(&end)
	if n := end.Len(); n > (mostLines+1)*(longestLine+50) || !strings.Contains(end.String(), "more lines above") {
		t.Errorf("%d bytes:\n%s", n, end.String())
	}
}

func TestRunWithoutFailuresEndsWithItsPackages(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newSummary(&out)
	err := s.read(strings.NewReader(lines))
	s.print(&out)
	if err != nil || out.String() != "ok  \ta\t0.1s\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestOtherRunsFollowDashes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][]string{
		"-race ./...": {"test -json -race ./..."},
		"-race ./... -- -C examples -race ./... -- -C cmd/bench ./...": {
			"test -json -race ./...", "test -C examples -json -race ./...", "test -C cmd/bench -json ./...",
		},
	} {
		var got []string
		for _, run := range split(strings.Fields(args)) {
			got = append(got, strings.Join(command(run), " "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}
