package commandline

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/millrace-go/millrace/internal/console"
	"github.com/millrace-go/millrace/sqlitestore"
)

// terminal is a pseudo-terminal with a command, and what the screen shows.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	ended  chan error

	mu      sync.Mutex
	pending []byte
	screen  screen
}

// openTerminal starts the command in a terminal of that size.
func openTerminal(t *testing.T, width, height int, environment []string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, master: master, cmd: exec.Command(program, args...), ended: make(chan error, 1)}
	term.resize(width, height)
	term.cmd.Env = append(append(os.Environ(), asCommand+"=yes", "TERM=xterm", "NO_COLOR="), environment...)
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			term.receive(buffer[:n])
			if err != nil {
				return // the command has ended
			}
		}
	}()
	go func() {
		err := term.cmd.Wait()
		<-read
		term.ended <- err
	}()
	t.Cleanup(func() {
		_ = term.cmd.Process.Kill()
		<-read
		_ = master.Close()
	})
	return term
}

// resize sets the size. The command receives SIGWINCH.
func (t *terminal) resize(width, height int) {
	t.t.Helper()
	size := &unix.Winsize{Col: uint16(width), Row: uint16(height)}
	if err := unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.t.Fatal(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.screen = newScreen(width, height)
}

func (t *terminal) receive(text []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = t.screen.write(append(t.pending, text...))
}

func (t *terminal) shown() screen {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.clone()
}

// await waits until the screen matches a pattern.
func (t *terminal) await(pattern string) string {
	t.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline, want := time.After(patient), regexp.MustCompile(pattern)
	for {
		if text := t.shown().text(); want.MatchString(text) {
			return text
		}
		select {
		case <-ticker.C:
		case <-deadline:
			t.t.Fatalf("the screen never showed %q, at last:\n%s", pattern, t.shown().text())
		}
	}
}

// enter types a text.
func (t *terminal) enter(text string) {
	t.t.Helper()
	if _, err := t.master.WriteString(text); err != nil {
		t.t.Fatal(err)
	}
}

func (t *terminal) awaitStatus(want int) {
	t.t.Helper()
	select {
	case <-t.ended:
	case <-time.After(patient):
		t.t.Fatal("the command did not end")
	}
	if got := t.cmd.ProcessState.ExitCode(); got != want {
		t.t.Errorf("status %d, want %d:\n%s", got, want, t.shown().text())
	}
}

// screen is what a terminal shows. It understands what the command sends, and fails on anything else.
type screen struct {
	width, height, row, column int
	cells                      [][]string // a wide character stands in its first cell
	// wrapped counts the lines that were too long for the terminal, coloured the changes of colour.
	wrapped, coloured int
	unknown           string
}

func newScreen(width, height int) screen {
	s := screen{width: width, height: height}
	for range height {
		s.cells = append(s.cells, make([]string, width))
	}
	return s
}

func (s screen) clone() screen {
	cells := s.cells
	s.cells = nil
	for _, row := range cells {
		s.cells = append(s.cells, append([]string{}, row...))
	}
	return s
}

func (s screen) text() string {
	var lines []string
	for _, row := range s.cells {
		var b strings.Builder
		for i := 0; i < len(row); i++ {
			if row[i] == "" {
				b.WriteByte(' ')
				continue
			}
			b.WriteString(row[i])
			i += console.Width(row[i]) - 1
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

var escape = regexp.MustCompile(`^\x1b\[(\??[\d;]*)([A-Za-z])`)

// write shows a text, and returns the beginning of a sequence whose end is missing.
func (s *screen) write(text []byte) []byte {
	for len(text) > 0 {
		if text[0] == '\x1b' {
			m := escape.FindSubmatch(text)
			if m == nil {
				return text
			}
			s.control(string(m[1]), string(m[2]))
			text = text[len(m[0]):]
			continue
		}
		if !utf8.FullRune(text) {
			return text
		}
		r, n := utf8.DecodeRune(text)
		s.put(r)
		text = text[n:]
	}
	return nil
}

func (s *screen) put(r rune) {
	switch r {
	case '\r':
		s.column = 0
		return
	case '\n':
		s.newLine()
		return
	}
	width := console.Width(string(r))
	if width == 0 {
		s.cells[s.row][max(0, s.column-1)] += string(r)
		return
	}
	if s.column+width > s.width {
		s.wrapped++
		s.column = 0
		s.newLine()
	}
	s.cells[s.row][s.column] = string(r)
	s.column += width
}

func (s *screen) newLine() {
	s.row++
	if s.row == s.height {
		s.row--
		s.cells = append(s.cells[1:], make([]string, s.width))
	}
}

func (s *screen) control(parameters, of string) {
	switch of {
	case "H":
		s.row, s.column = 0, 0
	case "K":
		clear(s.cells[s.row][min(s.column, s.width):])
	case "J":
		clear(s.cells[s.row][min(s.column, s.width):])
		for _, row := range s.cells[s.row+1:] {
			clear(row)
		}
	case "A":
		n, _ := strconv.Atoi(parameters)
		s.row = max(0, s.row-n)
	case "m":
		s.coloured++
	case "h", "l":
	default:
		s.unknown = fmt.Sprintf("%s%s", parameters, of)
	}
}

func TestWatchFitsTerminalsOfEverySize(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.must(t, done, "tenants", "create", "注文の合計の会社🙂", strings.Repeat("a-customer-with-a-long-name-", 3))
		p.must(t, done, "events", "append", "order-1", "Poison")
		p.startNode(t)
		p.await(t, `totals +live +0 +1 `, "projections", "status", "--all-tenants")
		term := openTerminal(t, 60, 24, nil,
			append([]string{"projections", "watch", "--all-tenants", "--interval", "50ms"}, p.flags...)...)
		for _, width := range []int{60, 80, 200, 60} {
			const oneFrame = `totals +\w+ +0 +1 +0`
			var text string
			for range 10 { // the first frames may be of the size before
				term.resize(width, 24)
				text = term.await(oneFrame)
				if term.shown().wrapped == 0 {
					break
				}
			}
			for _, want := range []string{"projection", "state", "behind", "parked", "skipped", "注"} {
				if !strings.Contains(text, want) {
					t.Errorf("at %d columns %s is missing:\n%s", width, want, text)
				}
			}
			if s := term.shown(); s.wrapped > 0 || s.unknown != "" || s.coloured == 0 {
				t.Errorf("at %d columns: %d lines are too long, unknown control %q, %d colours:\n%s", width, s.wrapped,
					s.unknown, s.coloured, text)
			}
		}
		term.enter("\x03")
		term.awaitStatus(done)
	})
}

func TestWatchWithoutColourAndWithoutTerminal(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.startNode(t)
		p.await(t, "totals +live", "projections", "status")
		watch := append([]string{"projections", "watch", "--interval", "20ms"}, p.flags...)
		term := openTerminal(t, 80, 24, []string{"NO_COLOR=1"}, watch...)
		term.await("totals +live")
		if s := term.shown(); s.coloured > 0 {
			t.Error("NO_COLOR is ignored")
		}
		term.enter("\x03")
		term.awaitStatus(done)

		plain := openTerminal(t, 60, 24, []string{"TERM=dumb"}, watch...)
		text := plain.await(`(?s)totals +live.*totals +live`)
		if s := plain.shown(); s.coloured > 0 || s.unknown != "" || s.wrapped > 0 {
			t.Errorf("control sequences or long lines on a dumb terminal:\n%s", text)
		}
		plain.enter("\x03")
		plain.awaitStatus(done)
	})
}

// Events that are appended while a person reads the question are handled.
func TestRecoveryEndsWhereTheQuestionSays(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.startNode(t)
		for _, end := range []string{"1", "0"} {
			tenant := "ends-at-" + end
			p.must(t, done, "tenants", "create", tenant)
			for range 3 {
				p.must(t, done, "events", "append", "s", "T", "--tenant", tenant)
			}
			for _, name := range []string{"mails", "totals"} {
				p.await(t, `live +0 +0 +0 +\S+ +\S+ +\S+ +3 `, "projections", "status", name, "--tenant", tenant)
			}
			p.must(t, done, "tenants", "pause", tenant)
			truncate(t, p, tenant, end)
			term := openTerminal(t, 80, 24, nil,
				append([]string{"tenants", "recover", tenant, "--others", "continue"}, p.flags...)...)
			term.await(`(?s)whose restored events end at ` + end + `.*Continue\?`)
			p.must(t, done, "events", "append", "s", "T", "--tenant", tenant)
			term.enter("y\n")
			out := term.await(`totals continues after \d+, from 3`)
			term.awaitStatus(done)
			if !strings.Contains(out, "totals continues after "+end+",") {
				t.Errorf("the restored events end at %s: %s", end, out)
			}
		}
	})
}

// Of the events that the question counted, one is discarded by another command, and another is parked meanwhile.
func TestDiscardTakesOnlyWhatTheQuestionCounted(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.startNode(t)
		park := func(stream, count string) {
			t.Helper()
			p.must(t, done, "events", "append", stream, poison["totals"])
			p.await(t, "^"+count+"\n$", "dead-letters", "count", "totals")
		}
		park("a", "1")
		park("b", "2")
		term := openTerminal(t, 80, 24, nil,
			append([]string{"dead-letters", "discard", "totals", "--all"}, p.flags...)...)
		term.await(`(?s)discard 2 parked events of totals.*Continue\?`)
		p.must(t, done, "dead-letters", "discard", "totals", "--stream", "a", "--yes")
		park("c", "2")
		term.enter("y\n")
		term.await(`discarded \d event`)
		term.awaitStatus(done)
		if out := p.must(t, done, "dead-letters", "count", "totals", "--stream", "c"); out != "1\n" {
			t.Errorf("of an event that was parked after the question, %s are left", out)
		}
		if out := p.must(t, done, "dead-letters", "count", "totals"); out != "1\n" {
			t.Errorf("%s are left", out)
		}
	})
}

// truncate deletes the events of a tenant after a position.
func truncate(t *testing.T, p place, tenant, position string) {
	t.Helper()
	ctx := t.Context()
	if p.name == "sqlite" {
		s, err := sqlitestore.Open(ctx, p.at, sqlitestore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		err = s.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `delete from millrace_events where position > `+position+`
				and tenant = (select id from millrace_tenants where name = ?1);
				update millrace_tenants set head = `+position+` where name = ?1;
				update millrace_streams set version = `+position+`
				where tenant = (select id from millrace_tenants where name = ?1)`, tenant)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	conn, err := pgx.Connect(ctx, p.at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	schema := pgx.Identifier{"millrace_" + tenant}.Sanitize()
	_, err = conn.Exec(ctx, "delete from "+schema+".events where global_seq > "+position+"; update "+schema+
		".streams set version = "+position+"; select setval(pg_get_serial_sequence('"+schema+
		".events', 'global_seq'), "+position+" + 1, false)")
	if err != nil {
		t.Fatal(err)
	}
}

func TestDangerousCommandAsksOnATerminal(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p place) {
		p.must(t, done, "migrate", "up")
		p.must(t, done, "tenants", "create", "acme")
		for _, answer := range []struct {
			text   string
			status int
		}{{"n\r", failed}, {"\r", failed}, {"yes\r", done}} {
			term := openTerminal(t, 80, 24, nil, append([]string{"tenants", "drop", "acme"}, p.flags...)...)
			term.await(`(?s)This will remove tenant "acme" permanently.*Continue\?`)
			term.enter(answer.text)
			term.awaitStatus(answer.status)
		}
		if out := p.must(t, done, "tenants", "list"); strings.Contains(out, "acme") {
			t.Error(out)
		}
	})
}
