package pgstore

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/pgstore/internal/pgerr"
)

const (
	// mostPrepared is how many statements of messages a session keeps prepared, and longestPrepared how long their
	// texts are at most. Others are parsed each time. unusedAfter is after how many uses of others one makes room for
	// another.
	mostPrepared, longestPrepared, unusedAfter = 200, 4 << 10, 20_000
	// preparedPaths is how many of these are for one text, each for the search path of a tenant. Further tenants share.
	preparedPaths = 8
	// mostDescribed is how many descriptions are remembered, and mostDescribedText the bytes of their texts.
	// describedFor is for how long, at least the half of it: meanwhile, a tenant's columns may get other types.
	mostDescribed, mostDescribedText, describedFor = 40_000, 16 << 20, 5 * time.Minute
)

// preparedKey is where a connection keeps its prepared.
const preparedKey = "millrace prepared statements of messages"

// prepared has the prepared statements of messages in a session. paths counts those of each text that are for one path,
// at most places. names counts their names, and uses their uses. Before it is full, none is looked for that makes room
// for another. unneeded are names that are deallocated next.
type prepared struct {
	known             map[statementKey]*preparedStatement
	paths             map[string]int
	places            int
	names, uses, full int64
	unneeded          []string
	described         *descriptions
}

// statementKey identifies a statement. If the search path is not that of its last use, the server analyses and plans a
// prepared statement anew, so it means the tables of the present path. But the types of its parameters stay those for
// which it was prepared, and its columns must stay the same. So a statement of the handler is prepared for one path or
// for one shape, and the other is empty. Those of the default tenant have neither: they use the session's path.
type statementKey struct{ sql, path, shape string }

// preparedStatement is a statement of a session. used is when it was used last. stale reports that it failed, and that
// the next message parses it anew: the types of its parameters may have changed since it was prepared. If it is an
// event's fault, it fails again.
type preparedStatement struct {
	as    *pgconn.StatementDescription
	used  int64
	stale bool
}

// undescribed is a made-up column of each prepared statement. pgx asks the server to describe a statement without
// columns each time that it is executed. A message decodes no column by its description.
var undescribed = make([]pgconn.FieldDescription, 1)

// use is how a message uses the prepared statement of a command: it frees another one, prepares this one for types, and
// executes it. as is the statement, nil if it is not prepared. learns reports that the server is to say its shape.
type use struct {
	as               *pgconn.StatementDescription
	frees            string
	key              statementKey
	types            []uint32
	prepares, learns bool
}

// preparedOn returns the prepared statements of a session, nil if it keeps none.
func (db *database) preparedOn(conn *pgx.Conn) *prepared {
	if !db.keepsPrepared(conn) || db.server.preparesUses { // hooks of the pool may discard them
		return nil
	}
	held := conn.PgConn().CustomData()
	p, _ := held[preparedKey].(*prepared)
	if p == nil {
		p = &prepared{
			known: make(map[statementKey]*preparedStatement), paths: make(map[string]int), described: &db.described,
		}
		p.places = preparedPaths
		held[preparedKey] = p
	}
	return p
}

// use returns how the next message uses the prepared statement of a command.
func (p *prepared) use(c *command) (u use) {
	if p == nil || len(c.sql) > longestPrepared {
		return use{}
	}
	p.uses++
	u.key = statementKey{sql: c.sql, path: c.path}
	found := p.known[u.key]
	if found == nil && c.path != "" && p.paths[c.sql] >= p.places {
		d, known := p.described.of(c.sql, c.path)
		switch {
		case !known:
			u.learns = true
		case d == nil:
			return use{}
		default:
			u.key, u.types = statementKey{sql: c.sql, shape: d.shape}, d.types
			found = p.known[u.key]
		}
	}
	switch {
	case found == nil:
		if len(p.known) >= mostPrepared {
			u.frees = p.forgetUnused()
			if u.frees == "" {
				return use{}
			}
		}
		p.names++
		name := fmt.Sprint("millrace_message_", p.names)
		found = &preparedStatement{as: &pgconn.StatementDescription{Name: name, Fields: undescribed}}
		p.add(u.key, found)
		u.prepares = true
	case found.stale:
		u.frees, u.prepares, found.stale = found.as.Name, true, false
	}
	if last := len(p.unneeded) - 1; last >= 0 && u.frees == "" {
		u.frees, p.unneeded = p.unneeded[last], p.unneeded[:last]
	}
	found.used, u.as = p.uses, found.as
	return u
}

func (p *prepared) add(key statementKey, s *preparedStatement) {
	p.known[key] = s
	if key.path != "" {
		p.paths[key.sql]++
	}
}

func (p *prepared) remove(key statementKey) {
	if _, known := p.known[key]; known && key.path != "" {
		p.paths[key.sql]--
		if p.paths[key.sql] == 0 {
			delete(p.paths, key.sql)
		}
	}
	delete(p.known, key)
}

// reset forgets all statements, since the session has lost them.
func (p *prepared) reset() {
	clear(p.known)
	clear(p.paths)
	p.unneeded = nil
}

// forgetUnused forgets a statement that was not used for long, and returns its name, empty if there is none.
func (p *prepared) forgetUnused() (name string) {
	if p.uses < p.full {
		return ""
	}
	for key, s := range p.known {
		if s.used < p.uses-unusedAfter {
			p.remove(key)
			return s.as.Name
		}
	}
	p.full = p.uses + mostPrepared
	return ""
}

// made records that the server has prepared the statement of a command. If its shape was not known, other tenants share
// the statement from now on. If they share another one of this shape already, they keep that.
func (p *prepared) made(c *command, answer any) {
	c.use.prepares = false
	found, is := answer.(*pgconn.StatementDescription)
	if !c.use.learns || !is {
		return
	}
	key, own := statementKey{sql: c.sql, shape: p.described.add(c.sql, c.path, found).shape}, p.known[c.use.key]
	p.remove(c.use.key)
	if _, shared := p.known[key]; shared {
		p.unneeded = append(p.unneeded, c.use.as.Name)
	} else {
		p.add(key, own)
	}
}

// onFailure records that a message failed at the first of these commands, and that the others were skipped.
func (p *prepared) onFailure(list []command, err error) {
	if p == nil || len(list) == 0 {
		return
	}
	for _, c := range list {
		if c.use.prepares {
			p.remove(c.use.key)
		}
		if c.use.frees != "" {
			p.unneeded = append(p.unneeded, c.use.frees) // it may be there still
		}
	}
	first := &list[0]
	if first.part != handlerPart {
		return
	}
	if first.use.key.shape != "" {
		p.described.forget(first.sql, first.path, pgerr.Is(err, pgerr.NotSupported))
	} else if s := p.known[first.use.key]; s != nil {
		s.stale = true
	}
}

// description is what a statement takes and returns. With an equal shape, the types of the parameters are the same, and
// the names and types of the columns.
type description struct {
	shape string
	types []uint32
}

// descriptions are those of statements for search paths, nil if the statement is not shared. Those of statements that
// fail are forgotten. So are all after some time: a tenant's column may have got a type to which the server converts
// without an error.
type descriptions struct {
	mu            sync.Mutex
	recent, older map[pathStatement]*description
	shapes        map[string]*description
	since         time.Time
	text          int
}

type pathStatement struct{ sql, path string }

// of returns the description of a statement for a path, if it is known.
func (d *descriptions) of(sql, path string) (found *description, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.age(time.Now())
	key := pathStatement{sql, path}
	found, known = d.recent[key]
	if !known {
		found, known = d.older[key]
	}
	return found, known
}

// age forgets the older descriptions if the recent ones are many or old.
func (d *descriptions) age(now time.Time) {
	old := now.Sub(d.since) > describedFor/2
	if d.recent != nil && !old && len(d.recent) < mostDescribed/2 && d.text < mostDescribedText/2 {
		return
	}
	d.recent, d.older = make(map[pathStatement]*description), d.recent
	if now.Sub(d.since) > describedFor {
		d.older = nil
	}
	d.shapes, d.since, d.text = make(map[string]*description), now, 0
}

// add remembers how the server describes a statement for a path.
func (d *descriptions) add(sql, path string, answer *pgconn.StatementDescription) *description {
	var shape []byte
	for _, oid := range answer.ParamOIDs {
		shape = binary.BigEndian.AppendUint32(shape, oid)
	}
	for _, f := range answer.Fields {
		shape = fmt.Appendf(shape, "%q %d %d ", f.Name, f.DataTypeOID, f.TypeModifier)
	}
	shape = binary.BigEndian.AppendUint32(shape, uint32(len(answer.ParamOIDs)))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.age(time.Now())
	found := d.shapes[string(shape)]
	if found == nil {
		found = &description{shape: string(shape), types: answer.ParamOIDs}
		d.shapes[found.shape] = found
	}
	d.set(pathStatement{sql, path}, found)
	return found
}

func (d *descriptions) set(key pathStatement, to *description) {
	if _, known := d.recent[key]; !known {
		d.text += len(key.sql)
	}
	d.recent[key] = to
}

// forget forgets a statement for a path. If it is apart, it is not shared for some time.
func (d *descriptions) forget(sql, path string, apart bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := pathStatement{sql, path}
	delete(d.recent, key)
	delete(d.older, key)
	if apart {
		d.age(time.Now())
		d.set(key, nil)
	}
}
