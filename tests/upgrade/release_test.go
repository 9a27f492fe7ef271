package upgrade_test

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// releases are the commits whose archives stand in testdata, the newest last.
var releases = []string{"e0e8d97"}

const root = "../.."

// sources returns the files of an archive by their paths, and a name that no other archive has.
func sources(release string) (files map[string][]byte, name string, err error) {
	archive, err := os.ReadFile(filepath.Join("testdata", release+".tar.bz2"))
	if err != nil {
		return nil, "", err
	}
	files = make(map[string][]byte)
	for entries := tar.NewReader(bzip2.NewReader(bytes.NewReader(archive))); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files, fmt.Sprintf("%s-%x", release, sha256.Sum256(archive)), nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("archive of %s: %w", release, err)
		}
		if entry.Typeflag != tar.TypeReg {
			continue
		}
		files[entry.Name], err = io.ReadAll(entries)
		if err != nil {
			return nil, "", fmt.Errorf("archive of %s: %w", release, err)
		}
	}
}

// unpacked returns the folder with the source of a release. It stays beside Go's cached builds, which are found by the
// path of the source.
func unpacked(release string) (string, error) {
	files, name, err := sources(release)
	if err != nil {
		return "", err
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("find Go's cache: %w", err)
	}
	place := filepath.Join(strings.TrimSpace(string(cache)), "millrace-tests", name)
	if _, err := os.Stat(place); err == nil {
		return place, nil
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return "", err
	}
	half, err := os.MkdirTemp(filepath.Dir(place), "unpacking-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(half)
	for path, content := range files {
		to := filepath.Join(half, filepath.FromSlash(path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, content, 0o600)); err != nil {
			return "", err
		}
	}
	// Another process may have been faster.
	if err := os.Rename(half, place); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return place, nil
}

// oldProgram builds package service with the library of the newest release, and returns the path of the program.
var oldProgram = sync.OnceValues(func() (string, error) {
	source, err := unpacked(releases[len(releases)-1])
	if err != nil {
		return "", err
	}
	main := filepath.Join(folder, "main.go")
	if err := os.WriteFile(main, []byte(programText), 0o600); err != nil {
		return "", err
	}
	// The files of the program stand among those of the library for the compiler alone.
	overlay := map[string]string{filepath.Join(source, "tests", "upgrade", "program", "main.go"): main}
	own, err := filepath.Glob("service/*.go")
	for _, file := range own {
		path, e := filepath.Abs(file)
		err = errors.Join(err, e)
		overlay[filepath.Join(source, "tests", "upgrade", file)] = path
	}
	text, e := json.Marshal(map[string]any{"Replace": overlay})
	list := filepath.Join(folder, "overlay.json")
	if err := errors.Join(err, e, os.WriteFile(list, text, 0o600)); err != nil {
		return "", err
	}
	program := filepath.Join(folder, "program")
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "released", "-overlay", list, "-o", program,
		"./tests/upgrade/program")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off") // as other tests build
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program with the library of %s: %w: %s", releases[len(releases)-1], err, out)
	}
	return program, nil
})

const programText = `package main

import (
	"fmt"
	"os"

	"github.com/millrace-go/millrace/tests/upgrade/service"
)

func main() {
	if err := service.Main(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
`

func TestMigrationsOfReleasesDoNotChange(t *testing.T) {
	for _, release := range releases {
		files, _, err := sources(release)
		must(t, err)
		seen := make(map[string]int)
		for path, released := range files {
			store, _, _ := strings.Cut(path, "/")
			if !strings.Contains(path, "/migrations/") {
				continue
			}
			seen[store]++
			present, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
			if err != nil || !bytes.Equal(present, released) {
				t.Errorf("%s differs from that of the release %s (%v): stores have it already, so add a migration with the next number",
					path, release, err)
			}
		}
		if seen["pgstore"] < 2 || seen["sqlitestore"] < 1 {
			t.Errorf("the archive of %s has the migrations %v", release, seen)
		}
	}
}
