package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/internal/engine"
	"github.com/millrace-go/millrace/internal/engine/faults"
	"github.com/millrace-go/millrace/internal/engine/handler"
	"github.com/millrace-go/millrace/internal/queued"
	"github.com/millrace-go/millrace/internal/usercode"
	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
	"github.com/millrace-go/millrace/pgstore/internal/session"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
	"github.com/millrace-go/millrace/projection"
)

// A batch whose handler queues its statements is one message with one Sync: begin, settings, statements, fence,
// checkpoint, commit and what restores the session. If something in it fails, the server skips the rest up to the Sync,
// the commit included. Batches that wait share a message: see sharing.

const (
	// mostInMessage is how many bytes a message has at most. The server executes the first half of a message before the
	// second one is there. If the process is frozen or cut off in between, its transaction stays open with its locks,
	// and no time-out ends it. A message that fits into the buffers of the network is sent at once.
	mostInMessage = 64 << 10
	// perCommand and perArgument are the bytes of a command and an argument in a message beside their texts, at most.
	// aroundHandler are those of all commands that are not the handler's, and aroundNext those of a batch that follows
	// another one, whose texts the message has.
	perCommand, perArgument, aroundHandler, aroundNext = 160, 8, 4 << 10, 2 << 10
)

// sizeOf returns how many bytes a message with these statements has at most, beside aroundHandler.
func sizeOf(statements []queued.Statement) (size int) {
	for _, s := range statements {
		size += perCommand + len(s.SQL)
		for _, arg := range s.Args {
			size += perArgument
			if text, set := arg.(string); set {
				size += len(text)
			}
		}
	}
	return size
}

// part is a part of a message.
type part int

const (
	openingPart part = iota
	settingsPart
	handlerPart
	timedPart
	commitPart
	endPart
	restorePart
)

// command is a statement of a message. of is its index in the statements of the handler.
type command struct {
	part part
	of   int
	sql  string
	args [][]byte
	// path is the search path of a statement of the handler, empty if it is the session's.
	path string
	// use is how the message uses the prepared statement of the command.
	use use
	// clock is the server's clock, in microseconds, in the answers of settingsPart and timedPart. async reports that
	// the commit after the latter does not wait for the disk.
	clock int64
	async bool
}

// place is where a batch stands in a message: whether the message is shared, and whether it follows and precedes
// another batch. flush is the setting of its commit.
type place struct {
	shared, follows, precedes bool
	flush                     string
}

// What a commit does about the disk: it never waits, another commit waits after it, or it waits for others. They are
// set after the handler, whose statements may have set something else.
const (
	flushNever = "pg_catalog.set_config('synchronous_commit', 'off', true), "
	flushLater = "pg_catalog.set_config('synchronous_commit', case pg_catalog.current_setting('synchronous_standby_names') when '' then 'off' " +
		"else pg_catalog.current_setting('synchronous_commit') end, true), "
	flushAll = "pg_catalog.set_config('synchronous_commit', case pg_catalog.current_setting('synchronous_commit') when 'off' then 'on' " +
		"else pg_catalog.current_setting('synchronous_commit') end, true), "
)

// clock is an expression: the server's clock in microseconds.
const clock = "(extract(epoch from pg_catalog.clock_timestamp()) * 1000000)::bigint, "

// appendTo appends the commands of a batch with the statements of its handler to those of a message.
func (b *batchTx) appendTo(list []command, lease engine.Lease, restore session.Restore, statements []queued.Statement,
	p place) []command {
	if b.opts.asyncCommit {
		p.flush = flushNever
	}
	list = slices.Grow(list, len(statements)+2*len(restore.Statements)+6)
	var args arguments
	args.grow(statements)
	add := func(part part, sql string) {
		list = append(list, command{part: part, sql: sql, args: args.take()})
	}
	first := clock
	if !p.follows {
		add(openingPart, queries.Text("begin_batch"))
	} else {
		for _, sql := range restore.Statements {
			add(openingPart, sql)
		}
		first += restore.Expressions + ", "
	}
	path := b.store.opts.tenantPath(b.id.Tenant)
	add(settingsPart, b.settings(&args, p, path, first))
	for i, s := range statements {
		for _, arg := range s.Args {
			args.add(arg)
		}
		list = append(list, command{part: handlerPart, of: i, sql: s.SQL, path: path, args: args.take()})
	}
	add(timedPart, "select "+clock+p.flush+b.commitWaitSQL(p)+restore.LocalUser)
	args.add(b.name)
	args.ints(int64(lease.Row))
	args.add(lease.Owner)
	args.ints(lease.Epoch, int64(lease.Incarnation), lease.Checkpoint, b.to)
	add(commitPart, b.store.control.sql("advance_batch"))
	if p.precedes {
		add(endPart, queries.Text("chain_batch"))
		return list
	}
	add(endPart, queries.Text("commit_batch"))
	for _, sql := range restore.Statements {
		add(restorePart, sql)
	}
	add(restorePart, "select "+restore.Expressions)
	return list
}

// commitWaitSQL is an expression that sets commitWait, empty if the batch waits no longer for other locks.
func (b *batchTx) commitWaitSQL(p place) string {
	if p.shared || b.commitWait() == b.lockWait() {
		return ""
	}
	return fmt.Sprintf("pg_catalog.set_config('lock_timeout', '%d', true), ", milliseconds(b.commitWait()))
}

// arguments have the arguments of the commands of a batch, in memory that they share. taken is how many belong to
// commands.
type arguments struct {
	values [][]byte
	text   []byte
	taken  int
}

// otherArguments and otherText are how many arguments the commands of a batch have beside those of its handler, and
// their bytes, about.
const otherArguments, otherText = 14, 256

func (a *arguments) grow(statements []queued.Statement) {
	n, size := otherArguments, otherText
	for _, s := range statements {
		n += len(s.Args)
		for _, arg := range s.Args {
			if text, set := arg.(string); set {
				size += len(text)
			}
		}
	}
	a.values, a.text = make([][]byte, 0, n), make([]byte, 0, size)
}

// add adds an argument, a text or nil.
func (a *arguments) add(arg any) {
	text, set := arg.(string)
	if !set {
		a.values = append(a.values, nil)
		return
	}
	begin := len(a.text)
	a.text = append(a.text, text...)
	a.values = append(a.values, a.text[begin:len(a.text):len(a.text)])
}

func (a *arguments) ints(numbers ...int64) {
	for _, n := range numbers {
		begin := len(a.text)
		a.text = strconv.AppendInt(a.text, n, 10)
		a.values = append(a.values, a.text[begin:len(a.text):len(a.text)])
	}
}

// take returns the arguments that were added since the last call.
func (a *arguments) take() [][]byte {
	taken := a.values[a.taken:len(a.values):len(a.values)]
	a.taken = len(a.values)
	return taken
}

// settings returns the statement that makes the settings of the transaction and announces it, and adds its arguments:
// what setUpSQL does for other batches, without the check of the fence. The handler has read nothing, so the check at
// the end is enough. first are expressions that come before.
func (b *batchTx) settings(args *arguments, p place, path, first string) (sql string) {
	lock, most := b.lockWait(), b.opts.timeout+afterDeadline
	statement := most
	if p.shared {
		lock, statement = min(lock, sharedWait), min(statement, sharedTime)
	}
	args.ints(milliseconds(lock), milliseconds(statement), milliseconds(most))
	args.add(b.name)
	args.ints(int64(b.store.control.batchClass), int64(b.fence.rows[0]))
	text := settingsText{
		first: first, unbounded: b.store.server.unbounded != "", watchesClients: b.store.server.watchesClients,
	}
	if path != "" {
		text.path = true
		args.add(path)
	}
	return text.sql()
}

// settingsText is what the text of settings_batch.sql depends on.
type settingsText struct {
	first                           string
	unbounded, watchesClients, path bool
}

// settingsTexts has the texts that were made.
var settingsTexts sync.Map

func (t settingsText) sql() string {
	if made, found := settingsTexts.Load(t); found {
		return made.(string)
	}
	more := ""
	if t.unbounded {
		more += "set_config('transaction_timeout', '0', true), "
	}
	if t.watchesClients {
		more += "set_config('client_connection_check_interval', '1000', true), "
	}
	if t.path {
		more += "set_config('search_path', $7::text, true), "
	}
	made, _ := settingsTexts.LoadOrStore(t, sqltext.Fill(queries.Text("settings_batch"),
		"{first}", t.first, "{more}", more))
	return made.(string)
}

// send sends a message. It returns the command at which the message failed, or the number of all. If the error is not
// the server's, the commit may have happened whatever the command is.
func send(ctx context.Context, conn *pgconn.PgConn, kept *prepared, list []command) (at int, err error) {
	changes := false
	for i := range list {
		list[i].use = kept.use(&list[i])
		changes = changes || list[i].use.prepares || list[i].use.frees != ""
	}
	if changes {
		at, err = sendPipeline(ctx, conn, kept, list)
	} else {
		at, err = sendBatch(ctx, conn, list)
	}
	if err != nil {
		kept.onFailure(list[at:], err)
	}
	return at, err
}

// errLost is the error of a message whose connection was lost before the server answered. pgx's own says that nothing
// was sent.
var errLost = fmt.Errorf("the connection was lost before the server answered: %w", io.ErrUnexpectedEOF)

// sendBatch sends a message that neither prepares nor frees statements. A batch of pgx costs less than a pipeline.
func sendBatch(ctx context.Context, conn *pgconn.PgConn, list []command) (at int, err error) {
	wasClosed := conn.IsClosed()
	var b pgconn.Batch
	for i := range list {
		c := &list[i]
		if c.use.as == nil {
			b.ExecParams(c.sql, c.args, nil, nil, nil)
		} else {
			b.ExecStatement(c.use.as, c.args, nil, nil)
		}
	}
	results := conn.ExecBatch(ctx, &b)
	for ; at < len(list) && results.NextResult(); at++ {
		err = list[at].read(results.ResultReader())
		if err != nil {
			_ = results.Close() // it repeats the error
			return at, err
		}
	}
	err = results.Close()
	switch {
	case err == nil && at < len(list):
		err = fmt.Errorf("%d answers to %d commands", at, len(list))
	case !wasClosed && errors.Is(err, pgconn.ErrConnClosed):
		err = errLost
	}
	return at, err
}

// sendPipeline sends a message that prepares statements, or frees them.
func sendPipeline(ctx context.Context, conn *pgconn.PgConn, kept *prepared, list []command) (at int, err error) {
	p := conn.StartPipeline(ctx)
	for i := range list {
		c := &list[i]
		if c.use.frees != "" {
			p.SendDeallocate(c.use.frees)
		}
		if c.use.prepares {
			p.SendPrepare(c.use.as.Name, c.sql, c.use.types)
		}
		if c.use.as == nil {
			p.SendQueryParams(c.sql, c.args, nil, nil, nil)
		} else {
			p.SendQueryStatement(c.use.as, c.args, nil, nil)
		}
	}
	at, err = answers(p, kept, list)
	if err != nil {
		_ = p.Close() // it repeats the error, or closes the connection
		return at, err
	}
	return at, p.Close()
}

// answers ends a message and reads the answers of its commands. It returns the command at which the message failed, or
// the number of all.
func answers(p *pgconn.Pipeline, kept *prepared, list []command) (at int, err error) {
	if err := p.Sync(); err != nil {
		return 0, err
	}
	for at := range list {
		if err := list[at].answered(p, kept); err != nil {
			return at, err
		}
	}
	return len(list), nil
}

// sendAnew is send. If something has discarded the prepared statements of the session, it sends the message a second
// time.
func sendAnew(ctx context.Context, conn *pgconn.PgConn, kept *prepared, list []command) (at int, err error) {
	at, err = send(ctx, conn, kept, list)
	if at == 0 && kept != nil && pgerr.Is(err, pgerr.NoPreparedStatement) {
		kept.reset()
		at, err = send(ctx, conn, kept, list)
	}
	return at, err
}

// answered reads the answers to a command, and to what the message did before it.
func (c *command) answered(p *pgconn.Pipeline, kept *prepared) error {
	if c.use.frees != "" {
		if _, err := p.GetResults(); err != nil {
			return err
		}
		c.use.frees = ""
	}
	if c.use.prepares {
		made, err := p.GetResults()
		if err != nil {
			return err
		}
		kept.made(c, made)
	}
	result, err := p.GetResults()
	if err != nil {
		return err
	}
	reader, is := result.(*pgconn.ResultReader)
	if !is {
		return fmt.Errorf("unexpected answer %T", result)
	}
	return c.read(reader)
}

// read reads the result of a command.
func (c *command) read(reader *pgconn.ResultReader) error {
	if (c.part == settingsPart || c.part == timedPart) && reader.NextRow() {
		values := reader.Values()
		c.clock, _ = strconv.ParseInt(string(values[0]), 10, 64)
		c.async = c.part == timedPart && string(values[1]) == "off"
	}
	_, err := reader.Close()
	return err
}

// aloneNext returns for each batch of a message how many of its projection's next ones are sent alone, by the time that
// it took on the server. That of a commit counts if it did not wait for the disk or a standby. It is known only of
// batches that another one follows, so a slow one counts for many batches.
func aloneNext(list []command) (all []int) {
	var before command
	for _, c := range list {
		took := time.Duration(c.clock-before.clock) * time.Microsecond
		switch {
		case c.part == timedPart && took > slowShared:
			all = append(all, 1)
		case c.part == timedPart:
			all = append(all, 0)
		case c.part != settingsPart:
			continue
		case before.async && took > slowShared:
			all[len(all)-1] = aloneAfterCommit
		}
		before = c
	}
	return all
}

// runQueued calls a handler that queues its statements, without a connection, and then executes what it queued: in one
// message if that is possible. The statements have the rest of the handler's time limit, and at least half of it.
func (b *batchTx) runQueued(ctx context.Context, lease engine.Lease, h handler.Handler, events []event.Envelope) error {
	began := time.Now()
	taken, err := queues.Call(ctx, b.store.database, b.opts.timeout, h.Queue, events)
	if taken.Abandoned {
		b.store.handling.abandoned.Add(1)
	}
	if err != nil {
		return fmt.Errorf("handle %s of %s: %w", b.what, b.id, err)
	}
	b.opts.timeout = max(b.opts.timeout-time.Since(began), b.opts.timeout/2) // for what it has queued
	statements := taken.Statements
	if b.afterHandler != nil || len(b.apart) > 0 || b.store.server.pooling.Lends || !queued.Plain(statements) ||
		aroundHandler+sizeOf(statements) > mostInMessage {
		release, err := b.connected(ctx, nil)
		if err != nil {
			return fmt.Errorf("handle %s of %s: %w", b.what, b.id, err)
		}
		defer release()
		b.fence.begin = b.store.control.checkLease(lease)
		b.advances(lease, b.to)
		return b.run(ctx, func(ctx context.Context, tx pgx.Tx) error { return sendInTx(ctx, tx, statements) })
	}
	if sent, err := b.share(ctx, lease, statements); sent {
		return err
	}
	release, err := b.connected(ctx, nil)
	if err != nil {
		return fmt.Errorf("handle %s of %s: %w", b.what, b.id, err)
	}
	defer release()
	return b.sendAlone(ctx, lease, statements)
}

// connected waits until a connection may be used, for the batch or for a message that it leads, with batches of these
// tenants.
func (b *batchTx) connected(ctx context.Context, tenants []string) (release func(), err error) {
	if b.connect == nil {
		return func() {}, nil
	}
	return b.connect(ctx, tenants)
}

// sendAlone sends a message with one batch.
func (b *batchTx) sendAlone(ctx context.Context, lease engine.Lease, statements []queued.Statement) error {
	leased, err := b.acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire a connection for %s: %w", b.id, storeFault(err))
	}
	b.begun = begun{leased: leased}
	defer b.release()
	b.restore, err = session.Of(ctx, leased.conn)
	if err != nil {
		return fmt.Errorf("begin %s of %s: %w", b.what, b.id, storeFault(err))
	}
	list := b.appendTo(nil, lease, b.restore, statements, place{})
	err = b.sendAll(ctx, leased.conn, list, statements)
	next := 1
	if err == nil {
		next = aloneNext(list)[0]
	}
	b.store.sharing.setAlone(lease.Row, next)
	return err
}

// atLimit returns why a message is cancelled that has reached the time limit. excused reports that the server waits for
// a lock or does not answer, and commits that it commits: then atLimit first waits until the message has ended, at most
// for finishTime.
func (b *batchTx) atLimit(ctx context.Context, ended <-chan struct{}) (excused, commits bool, cause error) {
	waits, err := b.asks(ctx, "waits_for_lock", b.restore.PID)
	if err != nil {
		return true, false, projection.ErrTimeout
	}
	commits, _ = b.asks(ctx, "commits", b.restore.PID)
	switch {
	case commits:
		timer := time.NewTimer(finishTime)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
		case <-ctx.Done():
		}
	case waits:
		return true, false, projection.ErrLockWait
	}
	return false, commits, projection.ErrTimeout
}

// sendAll sends a message within what is left of the handler's time limit. Its commit has finishTime.
func (b *batchTx) sendAll(ctx context.Context, conn *pgx.Conn, list []command, statements []queued.Statement) error {
	kept := b.store.preparedOn(conn)
	at, excused, commits, ended := 0, false, false, make(chan struct{})
	late := func() (cause error) {
		excused, commits, cause = b.atLimit(ctx, ended)
		return cause
	}
	var r usercode.Result
	err := b.store.handling.during(b, func() error {
		r = usercode.Within(ctx, b.opts.timeout, late,
			func(ctx context.Context) (err error) {
				defer close(ended)
				at, err = sendAnew(ctx, conn.PgConn(), kept, list)
				return err
			})
		return r.Err
	})
	if b.back.onItsWay { // the request to cancel may reach the next statement of the session
		defer closeHard(ctx, conn)
	}
	switch {
	case err == nil:
		return nil
	case r.Abandoned:
		b.leased.abandon()
		return fmt.Errorf("commit %s of %s up to %d: %w", b.what, b.id, b.to,
			&faults.Fault{Class: faults.Unclear, Err: err})
	case at >= len(list) || list[at].part == restorePart:
		b.store.log.Warn("resetting the session after a commit failed, closing its connection",
			zap.Stringer("projection", b.id), zap.Error(err))
		closeHard(ctx, conn)
		return nil
	case pgerr.FromServer(err):
		return b.refused(ctx, conn, list[at], statements, err)
	}
	closeHard(ctx, conn)
	fault := &faults.Fault{Class: faults.Unclear, Err: err} // all was sent, so it may have committed
	switch {
	case ctx.Err() != nil:
		fault = faults.Cancelled(context.Cause(ctx))
	case commits:
	case r.Cause != nil && excused:
		fault = &faults.Fault{
			Class: faults.Infrastructure, Probe: r.Cause == projection.ErrTimeout,
			Conflict: r.Cause == projection.ErrLockWait, Err: errors.Join(r.Cause, err),
		}
	case r.Cause != nil:
		fault = faults.Late(r.Cause, err)
	}
	return fmt.Errorf("commit %s of %s up to %d: %w", b.what, b.id, b.to, b.sentBack(err, fault))
}

// refused returns the fault of a message that the server refused at a command, and restores the session.
func (b *batchTx) refused(ctx context.Context, conn *pgx.Conn, at command, statements []queued.Statement,
	met error) error {
	fault, doing := classify(met), "commit %s"
	interrupted := fault.Class == faults.Interrupted
	switch {
	case at.part == openingPart, at.part == settingsPart:
		fault, doing = blocked(fault.OfStore()), "begin %s"
	case at.part == handlerPart:
		own := *fault
		own.SetClass(own.Class.OfHandler())
		own.Err = statements[at.of].Named(met)
		own.Position = projection.FailedPosition(own.Err)
		fault, doing = &own, "handle %s"
	case pgerr.Is(met, pgerr.TransactionEnded):
		closeHard(ctx, conn)
		fault = &faults.Fault{Class: faults.Handler, Err: errors.Join(ErrBatchEnded, met)}
	}
	err := b.sentBack(met, fault)
	if b.back.onItsWay || interrupted { // for the latter, a prepared statement may be the cause
		closeHard(ctx, conn)
	} else {
		b.rollback(ctx, conn, b.restore)
		if at.part == handlerPart {
			err = b.store.extensions.wrap(ctx, b.leased.conn, b.id.Tenant, err)
		}
		err = b.conflict(ctx, conn, met, err)
		closeStandby(ctx, conn, met)
	}
	return fmt.Errorf(doing+" of %s up to %d: %w", b.what, b.id, b.to, err)
}
