package pgstore

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/millrace-go/millrace/internal/pgtest"
	"github.com/millrace-go/millrace/internal/valid"
)

// longestControl is a control schema of the greatest length.
const longestControl = "control-schema-of-thirty-bytes"

// checkTenantSchemas returns what is wrong with the schemas of two tenants of a control schema, "" if nothing is.
func checkTenantSchemas(control, a, b string) string {
	for _, name := range []string{a, b} {
		switch schema := schemaName(control, name); {
		case !utf8.ValidString(schema):
			return "not valid UTF-8: " + schema
		case len(schema) > maxNameBytes:
			return "too long: " + schema
		case !strings.HasPrefix(schema, control+"_"):
			return "without the prefix of the control schema: " + schema
		case schema != schemaName(control, name):
			return "not always the same: " + schema
		}
	}
	if schema := schemaName(control, a); a != b && schema == schemaName(control, b) {
		return "shared by two tenants: " + schema
	}
	return ""
}

// maxTenantBytes is the maximum length of a tenant's name.
const maxTenantBytes = 200

func validTenant(name string) bool { return valid.Tenant(name) == nil }

func FuzzTenantSchema(f *testing.F) {
	long := strings.Repeat("x", maxTenantBytes)
	hashed := strings.TrimPrefix(schemaName("millrace", long), "millrace_")
	for _, pair := range [][2]string{
		{"acme", "globex"}, {long, hashed}, {hashed, strings.TrimPrefix(schemaName("millrace", hashed), "millrace_")},
		{long, long[:maxTenantBytes-1]}, {strings.Repeat("я", 100), strings.Repeat("я", 99)},
		{"~" + strings.Repeat("0", 24), "a"},
		{"default", "millrace_default"}, {"a_b", "a"}, {strings.Repeat("x", 54), strings.Repeat("x", 55)},
	} {
		f.Add("millrace", pair[0], pair[1])
		f.Add(longestControl, pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, control, a, b string) {
		if (Options{Schema: control}).validate() != nil || !validTenant(a) || !validTenant(b) {
			t.Skip()
		}
		if wrong := checkTenantSchemas(control, a, b); wrong != "" {
			t.Errorf("control schema %q, tenants %q and %q: %s", control, a, b, wrong)
		}
	})
}

// TestNoTwoTenantsShareASchema derives each name from another one or from its schema, as an attacker would.
func TestNoTwoTenantsShareASchema(t *testing.T) {
	t.Parallel()
	controls := []string{"m", "m_x", "m_x_y", "millrace", "millrace_", "мир", longestControl}
	alphabet := rapid.StringOfN(rapid.RuneFrom([]rune("ax_~0f\"' я🙂")), 1, 80, maxTenantBytes)
	rapid.Check(t, func(t *rapid.T) {
		control := rapid.SampledFrom(controls).Draw(t, "control")
		names := map[string]string{}
		name := alphabet.Draw(t, "name")
		for range 8 {
			if !validTenant(name) {
				break
			}
			for other := range names {
				if wrong := checkTenantSchemas(control, name, other); wrong != "" {
					t.Fatalf("control schema %q, tenants %q and %q: %s", control, name, other, wrong)
				}
			}
			schema := schemaName(control, name)
			names[name] = schema
			switch rapid.IntRange(0, 3).Draw(t, "next name") {
			case 0:
				name = strings.TrimPrefix(schema, control+"_")
			case 1:
				name = schema
			case 2:
				name += alphabet.Draw(t, "suffix")
			case 3:
				name = alphabet.Draw(t, "name")
			}
		}
	})
}

// TestSchemasOfTwoControlSchemasMeetOnlyIfBothAreReadable compares control schemas that are prefixes of one another.
func TestSchemasOfTwoControlSchemasMeetOnlyIfBothAreReadable(t *testing.T) {
	t.Parallel()
	alphabet := rapid.StringOfN(rapid.RuneFrom([]rune("x_~0")), 1, 80, maxTenantBytes)
	rapid.Check(t, func(t *rapid.T) {
		name := alphabet.Draw(t, "name")
		for _, other := range []string{"x_" + name, name + "x", name} {
			if !validTenant(other) {
				continue
			}
			one, two := schemaName("m", other), schemaName("m_x", name)
			if one == two && (one != "m_"+other || two != "m_x_"+name) {
				t.Fatalf("tenant %q of m and tenant %q of m_x share %q", other, name, one)
			}
		}
	})
}

func TestSchemaOfAnotherControlSchemaIsNotTakenOver(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	short := migrated(t, openStore(t, dsn, Options{Schema: "m"}))
	long := migrated(t, openStore(t, dsn, Options{Schema: "m_x"}))
	newTenant(t, long, "acme")
	if _, err := short.CreateTenant(testContext(t), "x_acme"); !errors.Is(err, ErrForeignSchema) {
		t.Errorf("error %v", err)
	}
}

func TestReadableSchemasAreThoseThatFit(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0", schemaHashDigits)
	for _, c := range []struct {
		control, tenant string
		readable        bool
	}{
		{"millrace", "acme", true}, {"millrace", "3f2b8c1e-9d4a-4f6b-8e2a-5c7d9e1f0a3b", true},
		{"millrace", strings.Repeat("x", 54), true}, {"millrace", strings.Repeat("x", 55), false},
		{"millrace", strings.Repeat("я", 27), true}, {"millrace", strings.Repeat("я", 28), false},
		{longestControl, strings.Repeat("x", 32), true}, {longestControl, strings.Repeat("x", 33), false},
		{"millrace", "a~" + digits, false}, {"millrace", "~" + digits, false}, {"millrace", "a~" + digits[1:], true},
		{"millrace", "a" + digits, true}, {"millrace", "a~" + digits[1:] + "F", true},
	} {
		schema := schemaName(c.control, c.tenant)
		if readable := schema == c.control+"_"+c.tenant; readable != c.readable {
			t.Errorf("the schema of %q under %q is %q", c.tenant, c.control, schema)
		}
	}
	// Cut at a rune, the prefix of this name ends a byte earlier than the room for it.
	if schema := schemaName("millrace", strings.Repeat("я", 100)); !strings.HasPrefix(schema, "millrace_"+
		strings.Repeat("я", 14)+"~") {
		t.Errorf("schema %q", schema)
	}
}

// TestGuideShowsTheSchemasOfTenants reads the table of names in docs/guide.md.
func TestGuideShowsTheSchemasOfTenants(t *testing.T) {
	t.Parallel()
	guide := string(must(os.ReadFile("../docs/guide.md"))(t))
	rows := regexp.MustCompile("(?m)^\\| `(.+)` \\| `(millrace_.+)` \\|$").FindAllStringSubmatch(guide, -1)
	if len(rows) < 4 {
		t.Fatalf("%d rows", len(rows))
	}
	hashed := 0
	for _, row := range rows {
		if schema := schemaName("millrace", row[1]); schema != row[2] {
			t.Errorf("the schema of tenant %q is %q, the guide says %q", row[1], schema, row[2])
		}
		if looksHashed(row[2]) {
			hashed++
		}
	}
	if hashed < 2 {
		t.Errorf("%d examples are hashed", hashed)
	}
}
