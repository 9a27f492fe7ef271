package event

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// DecodeOption changes how As decodes a body, and how a typed handler does, such as one of pgstore.On. Strict is one.
type DecodeOption struct{ strict bool }

// Strict refuses a body that does not have the members that New writes for the Go type. Without it, a member that was renamed
// decodes to the zero value, and nothing shows it.
//
//   - A member of the body for which the type has no field is ErrUnknownField.
//   - A field for which the body has no member is ErrMissingField, since it would be zero without having been appended as zero. So is a null
//     for a field that cannot be nil. A field whose tag has omitempty or omitzero may be missing: write that at a field
//     that came later, if zero is right for the events before it.
//
// The error is a *DecodeError, with the position of the event and the path of the member. So the event is not retried. Names match as
// in encoding/json, which ignores their case. A type with UnmarshalJSON or UnmarshalText decides itself what it accepts, and an interface
// accepts everything.
var Strict = DecodeOption{strict: true}

var (
	// ErrUnknownField is in the error of Strict for a member of the body for which the Go type has no field.
	ErrUnknownField = errors.New("the type has no such field")
	// ErrMissingField is in the error of Strict for a field of the Go type for which the body has no member, or null.
	ErrMissingField = errors.New("the body has no such member")
)

// isStrict reports whether Strict is one of the options.
func isStrict(options []DecodeOption) bool {
	for _, o := range options {
		if o.strict {
			return true
		}
	}
	return false
}

// strictly returns the first difference between the members of a body that was decoded into v, a pointer, and the fields of its type.
func strictly(e Envelope, v any) error {
	s := strict{rest: e.Body}
	path, err := s.value(shapeOf(reflect.TypeOf(v).Elem()))
	if err == nil {
		return nil
	}
	failed := newDecodeError(e, v, err)
	failed.Path = strings.TrimPrefix(path, ".")
	return failed
}

// strict reads a body that the decoder has accepted, so it need not look for errors of JSON. rest is what is not read yet.
type strict struct{ rest []byte }

// next returns the first byte of the next token.
func (s *strict) next() byte {
	for s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\t' || s.rest[0] == '\r' {
		s.rest = s.rest[1:]
	}
	return s.rest[0]
}

// more passes the beginning of an object or array or the comma after an element, and reports whether an element follows. If none does, it
// passes the end.
func (s *strict) more(first bool) bool {
	if first || s.next() == ',' {
		s.rest = s.rest[1:]
	}
	if c := s.next(); c != '}' && c != ']' {
		return true
	}
	s.rest = s.rest[1:]
	return false
}

// text passes a string, and returns it without its quotes. Escapes are decoded.
func (s *strict) text() []byte {
	s.next()
	end := 1
	for ; s.rest[end] != '"'; end++ {
		if s.rest[end] == '\\' {
			end++
		}
	}
	quoted := s.rest[:end+1]
	s.rest = s.rest[end+1:]
	if bytes.IndexByte(quoted, '\\') >= 0 {
		var decoded string
		if json.Unmarshal(quoted, &decoded) == nil {
			return []byte(decoded)
		}
	}
	return quoted[1:end]
}

// value compares the next value with a shape. It returns the path of the first difference, and what differs.
func (s *strict) value(of *shape) (path string, err error) {
	switch s.next() {
	case '{':
		if of.fields != nil {
			return s.structure(of.fields)
		}
		return s.elements(of, '{')
	case '[':
		return s.elements(of, '[')
	case '"':
		s.text()
		return "", nil
	case 'n':
		if !of.null {
			return "", ErrMissingField
		}
	}
	end := bytes.IndexAny(s.rest, ",]} \n\t\r")
	if end < 0 {
		end = len(s.rest)
	}
	s.rest = s.rest[end:]
	return "", nil
}

// structure compares the members of an object with the fields of a struct.
func (s *strict) structure(fields []field) (path string, err error) {
	var few [32]bool
	found := few[:]
	if len(fields) > len(few) {
		found = make([]bool, len(fields))
	}
	for first := true; s.more(first); first = false {
		name := s.text()
		at := named(fields, name)
		if at < 0 {
			return "." + string(name), ErrUnknownField
		}
		found[at] = true
		s.colon()
		path, err := s.value(shapeOf(fields[at].t))
		if err == nil {
			continue
		}
		if path != "" || !fields[at].optional {
			return "." + string(name) + path, err
		}
		s.rest = s.rest[len("null"):]
	}
	for i, f := range fields {
		if !found[i] && !f.optional {
			return "." + f.name, ErrMissingField
		}
	}
	return "", nil
}

// colon passes the colon after a name.
func (s *strict) colon() {
	s.next()
	s.rest = s.rest[1:]
}

// elements compares the elements of an array, or the values of an object, with their shape.
func (s *strict) elements(of *shape, begin byte) (path string, err error) {
	inner := anything
	if of.elem != nil {
		inner = shapeOf(of.elem)
	}
	n := 0
	for ; s.more(n == 0); n++ {
		var name []byte
		if begin == '{' {
			name = s.text()
			s.colon()
		}
		path, err := s.value(inner)
		switch {
		case err != nil && begin == '{':
			return "." + string(name) + path, err
		case err != nil:
			return fmt.Sprintf("[%d]%s", n, path), err
		}
	}
	switch {
	case of.length >= 0 && n > of.length:
		return fmt.Sprintf("[%d]", of.length), ErrUnknownField
	case n < of.length:
		return fmt.Sprintf("[%d]", n), ErrMissingField
	}
	return "", nil
}

// shape is what a type takes.
type shape struct {
	// null reports that null is not less than what New writes for a value of the type.
	null bool
	// fields are those of a struct, not nil. elem is the type of the elements of a map, a slice or an array. Both are nil if anything is taken.
	fields []field
	elem   reflect.Type
	// length is that of an array, and -1 for all other types.
	length int
}

// anything is the shape of a type that decodes itself, or holds any value.
var anything = &shape{null: true, length: -1}

// shapes are the shapes of the types that were seen, *shape by reflect.Type.
var shapes sync.Map

// shapeOf returns the shape of a type.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	of := newShape(t)
	shapes.Store(t, of)
	return of
}

func newShape(t reflect.Type) *shape {
	if decodesItself(t) {
		return anything
	}
	of := &shape{length: -1}
	switch t.Kind() {
	case reflect.Pointer:
		*of = *shapeOf(t.Elem())
		of.null = true
	case reflect.Map, reflect.Slice:
		of.null, of.elem = true, t.Elem()
	case reflect.Array:
		of.elem, of.length = t.Elem(), t.Len()
	case reflect.Struct:
		of.fields = fieldsOf(t)
		of.null = !slices.ContainsFunc(of.fields, func(f field) bool { return !f.optional })
	}
	return of
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodesItself reports whether a type has a decoding of its own, or holds any value.
func decodesItself(t reflect.Type) bool {
	to := reflect.PointerTo(t)
	return t.Kind() == reflect.Interface || to.Implements(unmarshaler) || to.Implements(textUnmarshaler)
}

// field is a field of a struct, as encoding/json sees it. Optional reports that a body may lack it.
type field struct {
	name     string
	t        reflect.Type
	optional bool
	// depth is how deep the field is embedded. A tag that names a field wins over a field without a name at the same depth.
	depth  int
	tagged bool
}

// fieldsOf returns the fields of a struct.
func fieldsOf(t reflect.Type) []field {
	all, fields := collect(nil, t, 0, false, nil), []field{}
	for _, f := range all {
		if dominates(f, all) {
			fields = append(fields, f)
		}
	}
	return fields
}

// dominates reports whether encoding/json uses this field, of all that have its name.
func dominates(f field, all []field) bool {
	rivals := 0
	for _, other := range all {
		switch {
		case other.name != f.name || other.depth > f.depth || other.depth == f.depth && f.tagged && !other.tagged:
		case other.depth < f.depth:
			return false
		default:
			rivals++ // itself is one
		}
	}
	return rivals == 1
}

// collect appends the fields of a struct and of the structs that it embeds. Around are the structs that embed it, which it may embed again.
func collect(to []field, t reflect.Type, depth int, optional bool, around []reflect.Type) []field {
	if slices.Contains(around, t) {
		return to
	}
	around = append(around[:len(around):len(around)], t)
	for i := range t.NumField() {
		f := t.Field(i)
		inner := f.Type
		if inner.Kind() == reflect.Pointer && inner.Name() == "" {
			inner = inner.Elem()
		}
		embeds := f.Anonymous && inner.Kind() == reflect.Struct
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !embeds {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if !validName(name) {
			name = ""
		}
		if embeds && name == "" {
			to = collect(to, inner, depth+1, optional || inner != f.Type, around)
			continue
		}
		mayLack := optional || slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return o == "omitempty" || o == "omitzero" })
		to = append(to, field{cmp.Or(name, f.Name), f.Type, mayLack, depth, name != ""})
	}
	return to
}

// validName reports whether encoding/json takes a name from a tag.
func validName(name string) bool {
	for _, r := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return name != ""
}

// named returns the index of the field of that name, or -1. Like encoding/json, it ignores case if no name is the same.
func named(fields []field, name []byte) int {
	for i := range fields {
		if fields[i].name == string(name) {
			return i
		}
	}
	return slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, string(name)) })
}
