package main

import (
	"bytes"
	"net"
	"testing"
)

// written is a connection that keeps what is written.
type written struct {
	net.Conn
	all []byte
}

func (w *written) Write(b []byte) (int, error) {
	w.all = append(w.all, b...)
	return len(b), nil
}

func TestStatementsAreCountedHoweverTheyAreWritten(t *testing.T) {
	message := func(kind byte, payload string) []byte {
		return append([]byte{kind, 0, 0, 0, byte(4 + len(payload))}, payload...)
	}
	sent := append([]byte{0, 0, 0, 9, 0, 3, 0, 0, 'Q'}, message('p', "QQQQ")...) // the first message has no type
	for _, m := range [][]byte{message('Q', "begin;E"), message('P', "Q\x00select 1"), message('B', ""),
		message('E', "\x00\x00"), message('S', ""), message('E', "")} {
		sent = append(sent, m...)
	}
	for piece := 1; piece <= len(sent); piece++ {
		var count statementCount
		w := &written{}
		c := &countedConn{Conn: w, count: &count}
		for i := 0; i < len(sent); i += piece {
			if _, err := c.Write(sent[i:min(i+piece, len(sent))]); err != nil {
				t.Fatal(err)
			}
		}
		if n := count.n.Load(); n != 3 || !bytes.Equal(w.all, sent) {
			t.Errorf("in pieces of %d: counted %d, want 3; wrote %q", piece, n, w.all)
		}
	}
}
