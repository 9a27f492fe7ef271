package pgstore

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/millrace-go/millrace/internal/valid"
	"github.com/millrace-go/millrace/pgstore/internal/sqltext"
)

// schemaHashDigits is the length of the hash in a schema's name. With 24 digits, an attacker who may choose names needs
// 2^96 attempts to find a name with the schema of a given tenant. More digits would leave no room for a
// readable prefix after a control schema of 30 bytes.
const schemaHashDigits = 24

// schemaName returns the name of a tenant's schema. It is CONTROL_NAME if that fits into 63 bytes. Otherwise it is
// CONTROL_PREFIX~HASH, where PREFIX is as much of the name as fits. A name that ends as such a schema does is always
// hashed, so no two tenants of a control schema share a schema.
func schemaName(control, tenant string) string {
	if plain := control + "_" + tenant; len(plain) <= maxNameBytes && !looksHashed(tenant) {
		return plain
	}
	sum := sha256.Sum256([]byte(control + "\x00" + tenant))
	hash := "~" + hex.EncodeToString(sum[:])[:schemaHashDigits]
	prefix := min(len(tenant), maxNameBytes-len(control)-len("_")-len(hash))
	for prefix < len(tenant) && !utf8.RuneStart(tenant[prefix]) {
		prefix--
	}
	return control + "_" + tenant[:prefix] + hash
}

// looksHashed reports whether a name ends with ~ and the digits of a hash.
func looksHashed(tenant string) bool {
	at := len(tenant) - schemaHashDigits - 1
	return at >= 0 && tenant[at] == '~' && strings.Trim(tenant[at+1:], "0123456789abcdef") == ""
}

// namedTenant is a tenant by its name, and its schema.
type namedTenant struct {
	db     *database
	name   string
	schema string
	quoted string // the schema
}

// named returns a tenant by its name, as Store.ForTenant does.
func (db *database) named(name string) (namedTenant, error) {
	if err := valid.Tenant(name); err != nil {
		return namedTenant{}, err
	}
	schema := schemaName(db.opts.Schema, name)
	return namedTenant{db: db, name: name, schema: schema, quoted: sqltext.Name(schema)}, nil
}
