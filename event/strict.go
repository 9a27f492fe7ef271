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

// DecodeOption changes how As decodes a body, and how a typed handler does, such as one of pgstore.On: Strict and
// IncludeRedacted.
type DecodeOption struct{ strict, redacted bool }

// Strict refuses a body that does not have the members that New writes for the Go type. Without it, a member that was
// renamed decodes to the zero value, and nothing shows it.
//
//   - A member of the body for which the type has no field is ErrUnknownField.
//   - A field for which the body has no member is ErrMissingField, since it would be zero without having been appended
//     as zero. So is a null for a field that cannot be nil. A field whose tag has omitempty or omitzero may be missing:
//     write that at a field that came later, if zero is right for the events before it.
//
// The error is a *DecodeError, with the position of the event and the path of the member. So the event is not retried.
// Names match as in encoding/json, which ignores their case. A type with UnmarshalJSON or UnmarshalText decides itself
// what it accepts, and an interface accepts everything.
var Strict = DecodeOption{strict: true}

var (
	// ErrUnknownField is in the error of Strict for a member of the body for which the Go type has no field.
	ErrUnknownField = errors.New("the type has no such field")
	// ErrMissingField is in the error of Strict for a field of the Go type for which the body has no member, or null.
	ErrMissingField = errors.New("the body has no such member")
)

// strictly returns the first difference between the members of a body that was decoded into v, a pointer, and the
// fields of its type.
func strictly(e Envelope, v any) error {
	s := strict{json.NewDecoder(bytes.NewReader(e.Body))}
	s.UseNumber() // a number that no float64 has is no error
	path, err := s.value(reflect.TypeOf(v).Elem())
	if err == nil {
		return nil
	}
	failed := newDecodeError(e, v, err)
	failed.Path = strings.TrimPrefix(path, ".")
	return failed
}

// strict reads a body that is known to be valid.
type strict struct{ *json.Decoder }

// value compares the next value with a type, nil for any value. It returns the path of the first difference, and what
// differs.
func (s strict) value(t reflect.Type) (path string, err error) {
	nilable := t == nil
	for ; t != nil && t.Kind() == reflect.Pointer && !decodesItself(t); t = t.Elem() {
		nilable = true
	}
	if t != nil && decodesItself(t) {
		t, nilable = nil, true
	}
	token, err := s.Token()
	if err != nil {
		return "", err
	}
	switch delim, _ := token.(json.Delim); {
	case token == nil && !nilable && !holdsNull(t):
		return "", ErrMissingField
	case delim == '{':
		return s.object(t)
	case delim == '[':
		return s.array(t)
	}
	return "", nil
}

// object compares the members of an object, whose first token was read.
func (s strict) object(t reflect.Type) (path string, err error) {
	if t != nil && t.Kind() == reflect.Struct {
		return s.structure(fieldsOf(t))
	}
	for s.More() {
		name, err := s.Token()
		if err != nil {
			return "", err
		}
		if path, err := s.value(elem(t)); err != nil {
			return fmt.Sprint(".", name, path), err
		}
	}
	_, err = s.Token()
	return "", err
}

// structure compares the members of an object with the fields of a struct.
func (s strict) structure(fields []field) (path string, err error) {
	found := make([]bool, len(fields))
	for s.More() {
		token, err := s.Token()
		if err != nil {
			return "", err
		}
		name, _ := token.(string)
		at := named(fields, name)
		if at < 0 {
			return "." + name, ErrUnknownField
		}
		found[at] = true
		path, err := s.value(fields[at].t)
		if err != nil && (path != "" || !fields[at].optional) {
			return "." + name + path, err
		}
	}
	for i, f := range fields {
		if !found[i] && !f.optional {
			return "." + f.name, ErrMissingField
		}
	}
	_, err = s.Token()
	return "", err
}

// array compares the elements of an array, whose first token was read.
func (s strict) array(t reflect.Type) (path string, err error) {
	n := 0
	for ; s.More(); n++ {
		if path, err := s.value(elem(t)); err != nil {
			return fmt.Sprintf("[%d]%s", n, path), err
		}
	}
	if t != nil && t.Kind() == reflect.Array && n != t.Len() {
		if n > t.Len() {
			return fmt.Sprintf("[%d]", t.Len()), ErrUnknownField
		}
		return fmt.Sprintf("[%d]", n), ErrMissingField
	}
	_, err = s.Token()
	return "", err
}

// elem is the type of the elements of t, nil if they may be anything.
func elem(t reflect.Type) reflect.Type {
	if t == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Map, reflect.Slice, reflect.Array:
		return t.Elem()
	}
	return nil
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

// holdsNull reports whether null is not less than what New writes for a value of the type.
func holdsNull(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Map, reflect.Slice:
		return true
	case reflect.Struct:
		return !slices.ContainsFunc(fieldsOf(t), func(f field) bool { return !f.optional })
	}
	return false
}

// field is a field of a struct, as encoding/json sees it. Optional reports that a body may lack it.
type field struct {
	name     string
	t        reflect.Type
	optional bool
	// depth is how deep the field is embedded. A tag that names a field wins over a field without a name at the same
	// depth.
	depth  int
	tagged bool
}

// fieldsByType are the fields of the structs that were seen, []field by reflect.Type.
var fieldsByType sync.Map

// fieldsOf returns the fields of a struct.
func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldsByType.Load(t); ok {
		return known.([]field)
	}
	all := collect(nil, t, 0, false, nil)
	var fields []field
	for _, f := range all {
		if dominates(f, all) {
			fields = append(fields, f)
		}
	}
	fieldsByType.Store(t, fields)
	return fields
}

// dominates reports whether encoding/json uses this field, of all that have its name.
func dominates(f field, all []field) bool {
	rivals := 0
	for _, other := range all {
		switch {
		case other.name != f.name || other.depth > f.depth || other.depth == f.depth && f.tagged && !other.tagged:
		case other.depth < f.depth || other.tagged && !f.tagged:
			return false
		default:
			rivals++ // itself is one
		}
	}
	return rivals == 1
}

// collect appends the fields of a struct and of the structs that it embeds. Around are the structs that embed it, which
// it may embed again.
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
		mayLack := optional ||
			slices.ContainsFunc(strings.Split(options, ","),
				func(o string) bool { return o == "omitempty" || o == "omitzero" })
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
func named(fields []field, name string) int {
	if at := slices.IndexFunc(fields, func(f field) bool { return f.name == name }); at >= 0 {
		return at
	}
	return slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, name) })
}
