package powerloss

import (
	"fmt"
	"path/filepath"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// This file is the glue between Disk and SQLite. SQLite reaches the system through a "VFS", a C struct of functions,
// and through the functions of each file that the VFS opens. Here, the structs are copied into memory of C, with some
// functions replaced. The replaced functions call the original ones, so that locks, shared memory and all files that
// are not watched stay as they are. A function pointer of C is the pointer to a Go function value of package level,
// which never moves.

// vfs is the original VFS.
var vfs *sqlite3.Tsqlite3_vfs

// openFolder is the original function that opens a folder, to sync it.
var openFolder uintptr

// methods are copies of the functions of files, by the original ones.
var methods sync.Map // uintptr to uintptr

// handles are the open files that are watched, by the address of their struct.
var handles sync.Map // uintptr to *handle

// handle is an open file.
type handle struct {
	disk     *Disk
	file     int
	name     string
	original *sqlite3.Tsqlite3_io_methods
}

// init makes the copy of the VFS the default. In init no other goroutine uses SQLite yet.
func init() {
	tls := libc.NewTLS()
	defer tls.Close()
	vfs = at[sqlite3.Tsqlite3_vfs](sqlite3.Xsqlite3_vfs_find(tls, 0))
	address, own := replica(tls, vfs)
	name, err := libc.CString("powerloss")
	if err != nil {
		panic(err)
	}
	own.FzName, own.FpNext = name, 0
	own.FxOpen, own.FxDelete = pointer(xOpen), pointer(xDelete)
	call, err := libc.CString("openDirectory")
	if err != nil {
		panic(err)
	}
	openFolder = function[func(*libc.TLS, uintptr, uintptr) uintptr](vfs.FxGetSystemCall)(tls, 0, call)
	function[func(*libc.TLS, uintptr, uintptr, uintptr) int32](vfs.FxSetSystemCall)(tls, 0, call, pointer(xOpenFolder))
	if rc := sqlite3.Xsqlite3_vfs_register(tls, address, 1); rc != sqlite3.SQLITE_OK || openFolder == 0 {
		panic(fmt.Sprintf("register VFS: %d", rc))
	}
}

// at returns the struct at an address of C.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

// function returns the function of a pointer of C.
func function[F any](address uintptr) F { return *(*F)(unsafe.Pointer(&address)) }

// pointer returns the pointer of C to a function of package level.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// replica returns a copy of a struct in memory of C, and its address.
func replica[T any](tls *libc.TLS, original *T) (uintptr, *T) {
	address := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*original)))
	if address == 0 {
		panic("out of memory")
	}
	own := at[T](address)
	*own = *original
	return address, own
}

func xOpen(tls *libc.TLS, own, zName, file uintptr, flags int32, outFlags uintptr) int32 {
	rc := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](vfs.FxOpen)(tls, own, zName, file,
		flags, outFlags)
	if rc != sqlite3.SQLITE_OK || zName == 0 {
		return rc
	}
	path := libc.GoString(zName)
	if disk := watching(path); disk != nil {
		name := filepath.Base(path)
		base := at[sqlite3.Tsqlite3_file](file)
		handles.Store(file, &handle{disk, disk.opened(name), name, at[sqlite3.Tsqlite3_io_methods](base.FpMethods)})
		base.FpMethods = ownMethods(tls, base.FpMethods)
	}
	return rc
}

// ownMethods returns the copy of the functions of a file.
func ownMethods(tls *libc.TLS, original uintptr) uintptr {
	if own, ok := methods.Load(original); ok {
		return own.(uintptr)
	}
	address, own := replica(tls, at[sqlite3.Tsqlite3_io_methods](original))
	own.FxClose, own.FxRead, own.FxWrite = pointer(xClose), pointer(xRead), pointer(xWrite)
	own.FxTruncate, own.FxSync = pointer(xTruncate), pointer(xSync)
	actual, _ := methods.LoadOrStore(original, address)
	return actual.(uintptr)
}

func handleOf(file uintptr) *handle {
	h, _ := handles.Load(file)
	return h.(*handle)
}

func xClose(tls *libc.TLS, file uintptr) int32 {
	h, _ := handles.LoadAndDelete(file)
	return function[func(*libc.TLS, uintptr) int32](h.(*handle).original.FxClose)(tls, file)
}

func xRead(tls *libc.TLS, file, buffer uintptr, n int32, offset int64) int32 {
	h := handleOf(file)
	if rc := h.disk.failure(Read, h.name); rc != 0 {
		return int32(rc)
	}
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](h.original.FxRead)(tls, file, buffer, n,
		offset)
}

func xWrite(tls *libc.TLS, file, buffer uintptr, n int32, offset int64) int32 {
	h := handleOf(file)
	failure := int32(h.disk.failure(Write, h.name))
	if failure != 0 {
		n /= 2
	}
	rc := function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](h.original.FxWrite)(tls, file, buffer, n,
		offset)
	if rc == sqlite3.SQLITE_OK {
		data := append([]byte(nil), unsafe.Slice(at[byte](buffer), n)...)
		h.disk.add(record{Operation: Operation{Write, h.name}, file: h.file, offset: offset, data: data})
	}
	if failure != 0 {
		return failure
	}
	return rc
}

func xTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	h := handleOf(file)
	if rc := h.disk.failure(Truncate, h.name); rc != 0 {
		return int32(rc)
	}
	rc := function[func(*libc.TLS, uintptr, int64) int32](h.original.FxTruncate)(tls, file, size)
	if rc == sqlite3.SQLITE_OK {
		h.disk.add(record{Operation: Operation{Truncate, h.name}, file: h.file, offset: size})
	}
	return rc
}

func xSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	h := handleOf(file)
	since := h.disk.Len()
	rc := int32(h.disk.failure(Sync, h.name))
	if rc == 0 {
		rc = function[func(*libc.TLS, uintptr, int32) int32](h.original.FxSync)(tls, file, flags)
	}
	h.disk.add(record{Operation: Operation{Sync, h.name}, file: h.file, since: since, failed: rc != sqlite3.SQLITE_OK})
	h.disk.folderSynced(h.name, since)
	return rc
}

func xDelete(tls *libc.TLS, own, zName uintptr, syncFolder int32) int32 {
	path := libc.GoString(zName)
	disk, name := watching(path), filepath.Base(path)
	if disk != nil {
		if rc := disk.failure(Delete, name); rc != 0 {
			return int32(rc)
		}
	}
	rc := function[func(*libc.TLS, uintptr, uintptr, int32) int32](vfs.FxDelete)(tls, own, zName, syncFolder)
	if disk != nil && rc == sqlite3.SQLITE_OK {
		disk.deleted(name)
		disk.folderSynced(name, disk.Len())
	}
	return rc
}

// xOpenFolder opens the folder of a file. SQLite does so to sync it.
func xOpenFolder(tls *libc.TLS, zName, descriptor uintptr) int32 {
	rc := function[func(*libc.TLS, uintptr, uintptr) int32](openFolder)(tls, zName, descriptor)
	path := libc.GoString(zName)
	if disk := watching(path); disk != nil && rc == sqlite3.SQLITE_OK {
		disk.folderOpened(filepath.Base(path))
	}
	return rc
}
