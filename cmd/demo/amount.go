package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace-go/millrace/internal/excerpt"
)

// mostCents is the largest amount. It is exact as a floating-point number too, and 9,000 such amounts fit into 64 bits.
const mostCents = 1e15 - 1

// errAmount is returned for an amount that is not exact in cents.
var errAmount = errors.New("must be a number below 10,000,000,000,000 with at most two decimals")

// amountOf returns the amount of a payment in cents; 0 if it has none.
func amountOf(body []byte) (int64, error) {
	amount, given := member(body, "amount")
	if !given {
		return 0, nil
	}
	n, err := cents(string(amount))
	if err != nil {
		return 0, fmt.Errorf("amount %s: %w", excerpt.Quoted(string(amount)), err)
	}
	return n, nil
}

// cents converts a JSON number, such as 26.85 or -7. No floating-point number is involved, so it is exact.
func cents(decimal string) (int64, error) {
	whole, fraction, _ := strings.Cut(decimal, ".")
	if len(fraction) > 2 {
		return 0, errAmount
	}
	n, err := strconv.ParseInt(whole+fraction+"00"[len(fraction):], 10, 64)
	if err != nil || n > mostCents || n < -mostCents {
		return 0, errAmount
	}
	return n, nil
}

// member returns a member of a JSON object. It reports false if the body is not an object, or the member is missing or
// null.
func member(body []byte, name string) (json.RawMessage, bool) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, false
	}
	value, found := object[name]
	return value, found && string(value) != "null"
}

// roleOf returns the role in the body of an event.
func roleOf(body []byte) string {
	var role string
	if value, given := member(body, "role"); !given || json.Unmarshal(value, &role) != nil {
		return "(none)"
	}
	return role
}
