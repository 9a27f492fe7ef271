package powerloss

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// sector is the number of bytes that a disk writes at once.
const sector = 512

// Cut writes the files to a folder as a disk may have them if the power fails after the first n operations. Synced data
// is complete. Of later writes, any sectors may be missing, and single sectors may be torn. Changes of the folder that
// were not synced may be missing. Cut returns the same for the same state of random.
func (d *Disk) Cut(n int, random *rand.Rand, folder string) error {
	d.mu.Lock()
	records, files := d.records[:n], slices.Clone(d.files)
	d.mu.Unlock()
	contents := make([]content, len(files))
	for i, file := range files {
		contents[i].durable = slices.Clone(file)
	}
	names := directory{durable: make(map[string]int), pending: make(map[string][]change)}
	for name, file := range d.first {
		names.durable[name] = file
	}
	for i, r := range records {
		switch r.Kind {
		case Create:
			names.pending[r.Name] = append(names.pending[r.Name], change{i, r.file})
		case Delete:
			names.pending[r.Name] = append(names.pending[r.Name], change{i, none})
		case SyncFolder:
			names.sync(r.since)
		case Write, Truncate:
			contents[r.file].pending = append(contents[r.file].pending, pending{i, r})
		case Sync:
			contents[r.file].sync(r, random)
		}
	}
	var err error
	for _, name := range names.sorted() {
		if file := names.survivor(name, random); file != none {
			content := contents[file].torn(contents[file].pending, random)
			err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), content, 0o600))
		}
	}
	return err
}

// none is the file of a name that does not exist.
const none = -1

// change is a change of the file of a name that is not durable yet.
type change struct{ at, file int }

// directory has the files by name.
type directory struct {
	durable map[string]int
	pending map[string][]change
}

// sync makes changes before a record durable.
func (d *directory) sync(before int) {
	for name, changes := range d.pending {
		for len(changes) > 0 && changes[0].at < before {
			d.durable[name] = changes[0].file
			changes = changes[1:]
		}
		d.pending[name] = changes
	}
}

func (d *directory) sorted() (names []string) {
	for name := range d.durable {
		names = append(names, name)
	}
	for name := range d.pending {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// survivor returns the file that a name has after the power loss.
func (d *directory) survivor(name string, random *rand.Rand) int {
	file, ok := d.durable[name]
	if !ok {
		file = none
	}
	if changes := d.pending[name]; len(changes) > 0 {
		if n := random.IntN(len(changes) + 1); n > 0 {
			file = changes[n-1].file
		}
	}
	return file
}

// pending is a write or truncation that is not durable yet.
type pending struct {
	at int
	record
}

// content is the content of one file.
type content struct {
	durable []byte
	pending []pending
}

// sync makes the writes durable that were done before the sync began. If the sync failed, some of them are lost: the
// system considers them written, and does not write them again.
func (c *content) sync(r record, random *rand.Rand) {
	n := len(c.pending)
	for n > 0 && c.pending[n-1].at >= r.since {
		n--
	}
	if r.failed {
		c.durable = c.torn(c.pending[:n], random)
	} else {
		for _, p := range c.pending[:n] {
			c.durable = p.apply(c.durable)
		}
	}
	c.pending = slices.Clone(c.pending[n:])
}

// apply returns the content after the operation.
func (p pending) apply(content []byte) []byte {
	size := int(p.offset)
	if p.Kind == Truncate {
		return resized(content, size)
	}
	content = resized(content, max(len(content), size+len(p.data)))
	copy(content[size:], p.data)
	return content
}

// resized returns the content with another size. New bytes are zero.
func resized(content []byte, size int) []byte {
	if size <= len(content) {
		clear(content[size:])
		return content[:size]
	}
	grown := slices.Grow(content, size-len(content))[:size]
	clear(grown[len(content):])
	return grown
}

// torn returns the content of which any part of the operations was written.
func (c *content) torn(operations []pending, random *rand.Rand) []byte {
	// In one of four cases, the disk wrote the operations in order, up to one of them.
	ordered, upTo := random.IntN(4) == 0, random.IntN(len(operations)+1)
	// In the other cases, each sector was written with this probability: rarely, often, always or something between.
	chance := []float64{0, 0.05, 0.5, 0.95, 1}[random.IntN(5)]
	cache, disk := slices.Clone(c.durable), slices.Clone(c.durable)
	sizes := []int{len(cache)}
	for i, p := range operations {
		cache = p.apply(cache)
		sizes = append(sizes, len(cache))
		if p.Kind == Truncate {
			continue
		}
		disk = stretched(disk, len(cache), random)
		for from := int(p.offset) / sector * sector; from < int(p.offset)+len(p.data); from += sector {
			written := random.Float64() < chance
			if ordered {
				written = i < upTo
			}
			if written {
				tear(disk[from:], cache[from:min(from+sector, len(cache))], random)
			}
		}
	}
	size := sizes[random.IntN(len(sizes))]
	switch {
	case ordered:
		size = sizes[upTo]
	case chance == 1:
		size = sizes[len(sizes)-1]
	}
	return stretched(disk, size, random)[:size]
}

// tear copies a sector to the disk, sometimes only its beginning or its end.
func tear(disk, sector []byte, random *rand.Rand) {
	at := random.IntN(len(sector))
	switch random.IntN(40) {
	case 0:
		copy(disk, sector[:at])
	case 1:
		copy(disk[at:], sector[at:])
	default:
		copy(disk, sector)
	}
}

// stretched returns the content with at least a size. New bytes are zero, or what was on the disk before.
func stretched(content []byte, size int, random *rand.Rand) []byte {
	was := len(content)
	if size <= was {
		return content
	}
	content = resized(content, size)
	if random.IntN(3) == 0 {
		for i := was; i < size; i++ {
			content[i] = byte(random.Uint32())
		}
	}
	return content
}
