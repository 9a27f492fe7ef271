package pgstore

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace-go/millrace/internal/valid"
)

var printedSeed = flag.Uint64("printed.seed", uint64(time.Now().UnixNano()), "seed of TestServerPrintsWhatAppendsCount")

// Appends count how many bytes the server prints for a value. It must be as many, or fewer where a text has escapes,
// repeated members or a negative zero.
func TestServerPrintsWhatAppendsCount(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	ctx := testContext(t)
	t.Logf("-printed.seed %d", *printedSeed)
	random := rand.New(rand.NewPCG(*printedSeed, 1))
	for i := range 300 {
		text := fmt.Sprintf(`[%s, "a b", {"c" :%s} ]`, someNumber(random), someNumber(random))
		var printed int
		err := store.Pool().QueryRow(ctx, "select octet_length($1::text::jsonb::text)", text).Scan(&printed)
		if err != nil {
			printed = -1
		}
		switch counted := valid.Printed("it", []byte(text), valid.MaxPrinted); {
		case counted != nil && printed >= 0, counted == nil && printed < 0:
			t.Fatalf("text %d, %s: the server prints %d bytes (%v), the append says %v", i, text, printed, err, counted)
		case printed >= 0 && valid.Printed("it", []byte(text), printed-1) == nil:
			t.Fatalf("text %d, %s: the server prints %d bytes, and the append counts fewer", i, text, printed)
		case printed >= 0 && valid.Printed("it", []byte(text), printed) != nil && !strings.Contains(text, "-0"):
			t.Fatalf("text %d, %s: the server prints %d bytes, and the append counts more", i, text, printed)
		}
	}
}

// someNumber returns a number of JSON, often at the limits of numeric.
func someNumber(random *rand.Rand) string {
	digits := func(n int) string {
		text := make([]byte, n)
		for i := range text {
			text[i] = "0001234567890"[random.IntN(13)]
		}
		return string(text)
	}
	number := []string{"", "-"}[random.IntN(2)]
	if random.IntN(2) == 0 {
		number += "0"
	} else {
		number += "7" + digits(random.IntN(6))
	}
	if random.IntN(2) == 0 {
		number += "." + digits(1+random.IntN(6))
	}
	switch random.IntN(5) {
	case 0:
		number += fmt.Sprintf("e%d", random.IntN(20)-10)
	case 1:
		number += fmt.Sprintf("E+%d", 131_060+random.IntN(20))
	case 2:
		number += fmt.Sprintf("e-%d", 16_370+random.IntN(20))
	}
	return number
}
