package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// far is a proxy that delays each message by half a round trip in each direction.
type far struct {
	listener         net.Listener
	network, address string // of the server
	folder           string // of the proxy's socket, empty if it listens on TCP
	oneWay           time.Duration
	stop             context.CancelFunc
	group            sync.WaitGroup
}

// farFrom starts a proxy in front of the server of dsn, and returns the proxy's DSN. The proxy runs until it is closed,
// since the clean-up after an interruption needs it too. It can be reached by whoever can reach the server: by a socket
// in a folder of this user, or by TCP.
func farFrom(ctx context.Context, dsn string, roundTrip time.Duration) (f *far, away string, err error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, "", err
	}
	// The host may be in the list of the next ones to try, with and without TLS.
	elsewhere := func(next *pgconn.FallbackConfig) bool { return next.Host != config.Host }
	if slices.ContainsFunc(config.Fallbacks, elsewhere) {
		return nil, "", errors.New("-round-trip supports one host")
	}
	f = &far{oneWay: roundTrip / 2}
	f.network, f.address = pgconn.NetworkAddress(config.Host, config.Port)
	away, err = f.listen(dsn, config.Port)
	if err != nil {
		return nil, "", fmt.Errorf("listen for -round-trip: %w", errors.Join(err, os.RemoveAll(f.folder)))
	}
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.group.Go(func() { f.accept(ctx) })
	return f, away, nil
}

// listen listens in the way in which the server does, and returns the DSN.
func (f *far) listen(dsn string, port uint16) (away string, err error) {
	if f.network == "unix" {
		f.folder, err = os.MkdirTemp("", "millrace-bench-")
		if err != nil {
			return "", err
		}
		f.listener, err = net.Listen("unix", filepath.Join(f.folder, fmt.Sprintf(".s.PGSQL.%d", port)))
		if err != nil {
			return "", err
		}
		return pgtest.WithSetting(dsn, "host", f.folder)
	}
	f.listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	away, err = pgtest.WithSetting(dsn, "host", "127.0.0.1")
	if err != nil {
		return "", err
	}
	return pgtest.WithSetting(away, "port", strconv.Itoa(f.listener.Addr().(*net.TCPAddr).Port))
}

// close ends all connections.
func (f *far) close() error {
	f.stop()
	err := f.listener.Close()
	f.group.Wait()
	return errors.Join(err, os.RemoveAll(f.folder)) // without a folder, this does nothing
}

func (f *far) accept(ctx context.Context) {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.group.Go(func() {
			defer client.Close()
			server, err := (&net.Dialer{}).DialContext(ctx, f.network, f.address)
			if err != nil {
				return
			}
			defer server.Close()
			defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
			var sent sync.WaitGroup
			defer sent.Wait()
			sent.Go(func() { f.pass(server, client) })
			f.pass(client, server)
		})
	}
}

// late is a message, and when the proxy delivers it.
type late struct {
	due  time.Time
	data []byte
}

// pass copies from one connection to the other until either is closed, and then closes both. All that had come before
// is delivered.
func (f *far) pass(to, from net.Conn) {
	queue := make(chan late, 1024)
	var sent sync.WaitGroup
	sent.Go(func() {
		for message := range queue {
			<-time.After(time.Until(message.due))
			if _, err := to.Write(message.data); err != nil {
				break
			}
		}
		to.Close()
		from.Close()
		for range queue { // the reader may wait for room
		}
	})
	defer sent.Wait()
	defer close(queue)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			queue <- late{time.Now().Add(f.oneWay), slices.Clone(buffer[:n])}
		}
		if err != nil {
			return
		}
	}
}
