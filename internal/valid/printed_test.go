package valid

import (
	"strings"
	"testing"
)

func TestNumbersHaveAllTheirDigitsWhenPrinted(t *testing.T) {
	for number, want := range map[string]int{
		"0": 1, "-0": 2, "7": 1, "-70": 3, "0.5": 3, "1.50": 4, "1e0": 1, "1e2": 3, "1.5e1": 2, "1.25e1": 4, "1E+3": 4,
		"1e-3": 5, "-12.5e-1": 5, "0.001e3": 1, "0.0010e3": 3,
		"0e100000": 1, "0.0e-3": 6, "1e131071": 131_072, "0.001e131074": 131_072, "1e-16383": 16_385, "10e-1": 3,
		"00e-0":    1,
		"1e131072": -1, "1e-16384": -1, "0e-16384": -1, "0e1073741823": -1, "1e99999999999999999999": -1,
		"1e-99999999999999999999":     -1,
		strings.Repeat("9", maxWhole): maxWhole, strings.Repeat("9", maxWhole+1): -1, "0." +
			strings.Repeat("1", maxFraction+1): -1,
	} {
		got, err := printedNumber([]byte(number))
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%.40s has %d bytes when printed, want %d: %v", number, got, want, err)
		}
	}
}

func TestValueThatPrintsTooMuchIsNamed(t *testing.T) {
	long := `"` + strings.Repeat(`\"`, 40) + `"`
	for text, want := range map[string]string{
		`{"a": [1, 2, {"b c": 1e70}], "d": 3}`: `body has 103 bytes as PostgreSQL prints it, of at most 90; the number 1e70 at $."a"[2]."b c" has 71 of them`,
		`[1e30,2e35,1e30]`:                     `body has 104 bytes as PostgreSQL prints it, of at most 90; the number 2e35 at $[1] has 36 of them`,
		"[" + long + "," + long + "]":          `body has 168 bytes as PostgreSQL prints it, of at most 90`,
		`[1e131072]`:                           `body contains the number 1e131072, which PostgreSQL cannot store: it has more than 131072 digits before the decimal point, or 16383 after it`,
		`[1,2,3]`:                              "",
		long:                                   "",
		`1e80`:                                 "",
		`{"a" : "1e131071", "b":null}`:         "",
	} {
		err := Printed("body", []byte(text), 90)
		if got := ""; err == nil && want != got || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func BenchmarkPrinted(b *testing.B) {
	text := []byte(`{"orderId":"8a1f6c1e-0d0c-4f9a-9a3c-0d1f6c1e8a1f","lines":[{"sku":"A-1","amount":3,"price":12.5},{"sku":"B-2","amount":1,"price":1e2}]}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := PrintedBytes(text); err != nil {
			b.Fatal(err)
		}
	}
}
