package guard

import (
	"fmt"
	"regexp"
	"strings"
)

// refuse returns an error if the text of a statement shows that it would end the store's transaction or set what
// outlasts it. The error names the mistake. What the text does not show, as in functions, is found when the transaction
// ends.
func refuse(sql string) error {
	for _, words := range statementHeads(sql) {
		first, second := words[0], words[1]
		switch first {
		case "begin", "commit", "end", "abort", "start":
			return fmt.Errorf("%s refused: %w", strings.ToUpper(first), ErrTxControl)
		case "rollback":
			if second != "to" && words[2] != "to" {
				return fmt.Errorf("ROLLBACK refused: %w", ErrTxControl)
			}
		case "prepare":
			if second == "transaction" {
				return fmt.Errorf("PREPARE TRANSACTION refused: %w", ErrTxControl)
			}
			return fmt.Errorf("PREPARE refused, the statement would outlast the transaction; use tx.Prepare, or let pgx prepare statements: %w", ErrTxControl)
		case "set":
			if second == "transaction" {
				return fmt.Errorf("SET TRANSACTION refused: %w", ErrTxControl)
			}
			if second != "local" && second != "constraints" {
				return fmt.Errorf("SET %s refused, it would outlast the transaction; use SET LOCAL: %w",
					strings.ToUpper(second), ErrTxControl)
			}
		case "reset", "discard", "listen", "unlisten", "load", "execute", "deallocate":
			return fmt.Errorf("%s refused, it concerns the session: %w", strings.ToUpper(first), ErrTxControl)
		}
	}
	if call := sessionCall.FindStringSubmatch(sql); call != nil {
		return fmt.Errorf("%s refused, it would outlast the transaction: %w", strings.ToLower(call[1]+call[2]),
			ErrTxControl)
	}
	return nil
}

// sessionCall finds calls that set or lock for the session.
var sessionCall = regexp.MustCompile(`(?i)\b(?:(set_config)\s*\([^()]*,\s*(?:false|'f(?:alse)?'|0::bool(?:ean)?)\s*\)|(pg_(?:try_)?advisory_lock(?:_shared)?)\s*\()`)

// statementHeads returns the first three words, in lower case, of each statement in sql. It skips quotes, dollar
// quotes, comments, and the statements of functions from BEGIN ATOMIC to END.
func statementHeads(sql string) [][3]string {
	var heads [][3]string
	var head [3]string
	n := 0
	last, atomic := "", false
	flush := func() {
		if n > 0 && !atomic {
			heads = append(heads, head)
		}
		head, n, last = [3]string{}, 0, ""
	}
	for i := 0; i < len(sql); {
		rest := sql[i:]
		switch c := sql[i]; {
		case strings.HasPrefix(rest, "--"):
			i += lengthUntil(rest, "\n")
		case strings.HasPrefix(rest, "/*"):
			i += commentLength(rest)
		case c == '\'' || c == '"':
			i += quotedLength(rest, c == '\'' && last == "e" && isWordByte(sql[i-1]))
			n = max(n, 1)
		case c == '$' && dollarTag.MatchString(rest):
			tag := dollarTag.FindString(rest)
			i += len(tag) + lengthUntil(rest[len(tag):], tag)
		case c == ';':
			flush()
			i++
		case isWordByte(c):
			end := i
			for end < len(sql) && isWordByte(sql[end]) {
				end++
			}
			word := strings.ToLower(sql[i:end])
			switch {
			case word == "atomic" && last == "begin":
				flush()
				atomic = true
			case word == "end" && atomic && n == 0:
				atomic = false
			case n < len(head):
				head[n] = word
				n++
			}
			last, i = word, end
		default:
			i++
		}
	}
	flush()
	return heads
}

// quotedLength returns the length of the quoted text at the beginning of s. With escapes, as in E'it\'s', a backslash
// escapes the character after it.
func quotedLength(s string, escapes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && escapes:
			i++
		case s[i] == s[0]:
			return i + 1
		}
	}
	return len(s)
}

var dollarTag = regexp.MustCompile(`^\$(?:[\pL_][\pL\pN_]*)?\$`)

func isWordByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

// commentLength returns the length of the comment at the beginning of s. Comments nest, as PostgreSQL reads them.
func commentLength(s string) int {
	for i, depth := 0, 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "/*"):
			depth++
			i++
		case strings.HasPrefix(s[i:], "*/"):
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// lengthUntil returns the length of s up to the end of end, or of all of s if it has no end.
func lengthUntil(s, end string) int {
	if at := strings.Index(s, end); at >= 0 {
		return at + len(end)
	}
	return len(s)
}
