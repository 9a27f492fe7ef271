package sqlitestore

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of an event. SQLite notices damage of its structure, but not of values: without a
// checksum, a flipped bit of a body would reach projections. Each text is preceded by its length, so that no byte can
// move from one to the next. The event is encoded into buffer, which is returned for the next one.
func checksum[T string | ~[]byte](buffer []byte, id, version, created int64, stream, eventType string, body, headers T,
	causation, correlation string) ([]byte, int64) {
	buffer = buffer[:0]
	for _, n := range [...]int64{id, version, created} {
		buffer = binary.LittleEndian.AppendUint64(buffer, uint64(n))
	}
	buffer = appendText(appendText(buffer, stream), eventType)
	buffer = appendText(appendText(buffer, body), headers)
	buffer = appendText(appendText(buffer, causation), correlation)
	return buffer, int64(crc32.Checksum(buffer, castagnoli))
}

func appendText[T string | ~[]byte](buffer []byte, text T) []byte {
	return append(binary.AppendUvarint(buffer, uint64(len(text))), text...)
}
