package upcast

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/millrace-go/millrace/internal/excerpt"
)

var (
	// versioned is a name with a version. attempted looks like one, so that a version that cannot be read does not
	// become a part of a name.
	versioned = regexp.MustCompile(`^(.+)\.v([1-9][0-9]{0,8})$`)
	attempted = regexp.MustCompile(`(?i)\.v([0-9][^.]*|[-+][^.]*|)(\.[0-9]+)*$`)
)

// parse returns the name of an event type without its version, and the version. Without a suffix, the version is 1.
func parse(name string) (base string, version int, err error) {
	if found := versioned.FindStringSubmatch(name); found != nil {
		version, err = strconv.Atoi(found[2])
		return found[1], version, err
	}
	if suffix := attempted.FindString(name); suffix != "" {
		return name, 0,
			fmt.Errorf("event type %s: its version %s must be a suffix such as .v2, with a number from 1 to 999999999",
				excerpt.Quoted(name), excerpt.Quoted(suffix))
	}
	return name, 1, nil
}
