package sqlfile

import (
	"fmt"
	"io/fs"
	"strings"
)

// Macros are the texts that a store puts in place of the macros of shared statements. %s stands for the argument of a
// macro.
type Macros map[string]string

// macros are the macros of shared statements, and whether they take an argument.
var macros = map[string]bool{
	"control":    false, // {control}.leases: a table of the control plane
	"projection": false, // d.{projection}: the column with the row of a projection
	"now":        false, // the time
	"in":         true,  // name {in $1::text[]}: whether a value is in a list
	// from {rows $1::text[]}: a table with the name list, whose column value has the values of a list
	"rows": true,
	// from {objects $1::jsonb}: a table with the name list, whose column value has the objects of a JSON array
	"objects": true,
	// {tenant_id $1::text}: what the tables, except that of tenants, have for the tenant of this name
	"tenant_id":   true,
	"tenant_name": false, // t.{tenant_name}: the column with the name of a tenant, in the table of tenants
	"living":      true,  // {living l.owner}: whether a node is alive
	"lock":        true,  // {lock for share}: at the end of a select, the lock of its rows

	// Those of the rows that move to another store: see control.Move. Times in JSON are microseconds since 1970.
	"object":         true,  // {object 'name', p.name}: a JSON object of keys and values
	"array":          true,  // {array list.value}: an aggregate, the JSON array of values
	"json":           true,  // {json e.types}: a list, or JSON, as a value of {object …}
	"micros":         true,  // {micros d.ended_at}: a time as a value of {object …}
	"time":           true,  // {time list.value->>'at'}: a time of an object of {objects …}
	"numbers":        true,  // {numbers 'positions'}: the list under this key of an object of {objects …}
	"texts":          true,  // {texts 'types'}: the same of texts
	"ids":            true,  // {ids 'letters'}: {numbers 'letters'} plus $4
	"passed":         true,  // {passed p}: the ranges that a projection has passed, as JSON
	"passed_columns": false, // the columns for them
	"passed_values":  false, // their values, from list.value->'passed'
	"stream_version": false, // d.{stream_version}: the column with the version of a dead letter's event
	"given_ids":      false, // after the columns of an insert, if the ids are given
}

// Share adds the statements of sql/*.sql, each of which is one text for all stores. expand writes a statement for this
// store. It panics if it cannot, or if the store has a statement of the same name.
func (q Queries) Share(files fs.FS, expand func(text string) (string, error)) Queries {
	for name, text := range load(files, "sql") {
		if _, twice := q[name]; twice {
			panic("statement " + name + " is shared, and in a folder of the store")
		}
		expanded, err := expand(text)
		if err != nil {
			panic(fmt.Sprintf("statement %s: %v", name, err))
		}
		q[name] = expanded
	}
	return q
}

// Expand puts the texts of macros in place of {name} and {name argument}. An argument may contain macros.
func (m Macros) Expand(text string) (string, error) {
	before, after, found := strings.Cut(text, "{")
	if !found {
		return text, nil
	}
	macro, after, err := cutMacro(after)
	if err != nil {
		return "", err
	}
	name, argument, argued := strings.Cut(macro, " ")
	takes, known := macros[name]
	expanded, has := m[name]
	switch {
	case !known:
		return "", fmt.Errorf("there is no macro {%s}", name)
	case !has:
		return "", fmt.Errorf("the store has no text for the macro {%s}", name)
	case takes && !argued:
		return "", fmt.Errorf("the macro {%s} needs an argument", name)
	case argued && !takes:
		return "", fmt.Errorf("the macro {%s} takes no argument: %s", name, argument)
	}
	argument, err = m.Expand(argument)
	if err != nil {
		return "", err
	}
	after, err = m.Expand(after)
	return before + strings.ReplaceAll(expanded, "%s", argument) + after, err
}

// cutMacro cuts a text that begins after a brace at the brace that closes it.
func cutMacro(text string) (macro, after string, err error) {
	open := 1
	for i, c := range text {
		switch c {
		case '{':
			open++
		case '}':
			open--
		}
		if open == 0 {
			return text[:i], text[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("a brace is not closed: {%s", text)
}
