package projection

import (
	"strconv"
	"strings"
)

// MaxVersion is the highest version of a projection.
const MaxVersion = 9_999

// VersionName returns the name under which a version of a projection is stored, and which an ID has. It is the name
// itself for versions 0 and 1, and "totals@2" for version 2 of totals.
func VersionName(name string, version int) string {
	if version <= 1 {
		return name
	}
	return name + "@" + strconv.Itoa(version)
}

// Version returns the name of the projection without its version, and the version: "totals" and 2 for "totals@2". The
// version of a name without one is 1.
func (id ID) Version() (name string, version int) {
	at := strings.LastIndexByte(id.Name, '@')
	if at > 0 {
		if n, err := strconv.Atoi(id.Name[at+1:]); err == nil && n <= MaxVersion &&
			VersionName(id.Name[:at], n) == id.Name {
			return id.Name[:at], n
		}
	}
	return id.Name, 1
}
