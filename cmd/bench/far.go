package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace-go/millrace/internal/pgtest"
)

// far makes a server answer as if it were on another machine: it passes on what comes, half a round trip later.
type far struct {
	listener         net.Listener
	network, address string // of the server
	oneWay           time.Duration
	stop             context.CancelFunc
	group            sync.WaitGroup
}

// farFrom returns the DSN of the server that has this one, at a distance.
func farFrom(ctx context.Context, dsn string, roundTrip time.Duration) (f *far, away string, err error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, "", err
	}
	f = &far{oneWay: roundTrip / 2}
	f.network, f.address = pgconn.NetworkAddress(config.Host, config.Port)
	f.listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("listen for -round-trip: %w", err)
	}
	ctx, f.stop = context.WithCancel(ctx)
	f.group.Go(func() { f.accept(ctx) })
	away, err = pgtest.WithSetting(dsn, "host", "127.0.0.1")
	if err == nil {
		away, err = pgtest.WithSetting(away, "port", strconv.Itoa(f.listener.Addr().(*net.TCPAddr).Port))
	}
	if err != nil {
		f.close()
		return nil, "", err
	}
	return f, away, nil
}

// close ends all connections.
func (f *far) close() {
	f.stop()
	f.listener.Close()
	f.group.Wait()
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
			f.group.Go(func() { f.pass(server, client) })
			f.pass(client, server)
		})
	}
}

// late is what came, and when it is to arrive.
type late struct {
	due  time.Time
	data []byte
}

// pass passes on what comes until one of the two is closed, and then closes the other one.
func (f *far) pass(to, from net.Conn) {
	queue := make(chan late, 1024)
	f.group.Go(func() {
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
	defer close(queue)
	for {
		data := make([]byte, 64<<10)
		n, err := from.Read(data)
		if n > 0 {
			queue <- late{time.Now().Add(f.oneWay), data[:n]}
		}
		if err != nil {
			return
		}
	}
}
