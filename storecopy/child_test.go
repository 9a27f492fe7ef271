package storecopy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace-go/millrace/pgstore"
	"github.com/millrace-go/millrace/sqlitestore"
)

// childEnv marks a process that a test starts. It is this test program, and copies the store of a file.
const childEnv = "MILLRACE_COPY_CHILD"

// childMain copies a store if this is a child. Otherwise it returns false.
func childMain() bool {
	if os.Getenv(childEnv) == "" {
		return false
	}
	if err := childCopies(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// childCopies copies a store in small pages. After each step it prints a line, and waits for one.
func childCopies(ctx context.Context, path, dsn string) error {
	source, err := sqlitestore.Open(ctx, path, sqlitestore.Options{})
	if err != nil {
		return err
	}
	target, err := pgstore.Open(ctx, dsn, pgstore.Options{})
	if err != nil {
		return err
	}
	opts := keepAll()
	input := bufio.NewReader(os.Stdin)
	opts.Progress = func(p Progress) {
		fmt.Println(p)
		_, _ = input.ReadString('\n')
	}
	return runFaulty(ctx, source, target, opts, never())
}

// TestCopyContinuesAfterItsProcessIsKilled kills the process of a copy after more and more steps.
func TestCopyContinuesAfterItsProcessIsKilled(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	source, want := small(t)
	target := newTarget(t)
	_, path, _ := strings.Cut(source.CopySource().Name(), ":")
	dsn := target.Pool().Config().ConnString()
	for killedAfter := 1; ; killedAfter += 2 {
		child := exec.CommandContext(ctx, os.Args[0], path, dsn)
		child.Env, child.Stderr = append(os.Environ(), childEnv+"=1"), os.Stderr
		input, output := must(child.StdinPipe())(t), must(child.StdoutPipe())(t)
		noError(t, child.Start())
		steps := 0
		for lines := bufio.NewScanner(output); lines.Scan(); {
			if steps++; steps == killedAfter {
				noError(t, child.Process.Kill())
				break
			}
			must(fmt.Fprintln(input))(t)
		}
		err := child.Wait()
		if err == nil {
			if killedAfter < 15 {
				t.Errorf("the copy ended after %d kills", killedAfter/2)
			}
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Exited() {
			t.Fatalf("after %d steps: %v", steps, err)
		}
	}
	mustHave(t, target, want)
}
