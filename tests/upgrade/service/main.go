package service

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace-go/millrace/event"
)

// Main is the main function of the program:
//
//	program [flags] ORDER PLACE
//
// The orders are fill and finish, as the functions of that name; contents, which prints Contents as JSON; and serve,
// which runs projections and appends events until the input ends.
func Main(args []string, in io.Reader, out io.Writer) error {
	var node Node
	var names, create string
	flags := flag.NewFlagSet("program", flag.ContinueOnError)
	flags.StringVar(&node.Name, "name", "node", "name of the node")
	flags.StringVar(&names, "projections", strings.Join(Kept, ","), "projections to run")
	flags.BoolVar(&node.Mended, "mended", false, "handle bad events")
	flags.StringVar(&create, "create", "", "tenant to create first")
	if err := flags.Parse(args); err != nil {
		return err
	}
	node.Projections = strings.Split(names, ",")
	ctx := context.Background()
	store, err := Open(ctx, flags.Arg(1))
	if err != nil {
		return err
	}
	defer store.Close()
	switch order := flags.Arg(0); order {
	case "fill":
		return Fill(ctx, store)
	case "finish":
		return Finish(ctx, store, node.Projections...)
	case "contents":
		contents, err := Contents(ctx, store)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(contents)
	case "serve":
		if create != "" {
			if err := store.CreateTenants(ctx, create); err != nil {
				return err
			}
		}
		return serve(ctx, store, node, in, out)
	default:
		return fmt.Errorf("unknown order %q", order)
	}
}

// serve runs a node until the input ends. It prints the tenant and the position of each event that it appends.
func serve(ctx context.Context, store Store, node Node, in io.Reader, out io.Writer) error {
	rt, err := node.Runtime(store)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, in)
	}()
	appends := make(chan error, 1)
	go func() {
		defer stop()
		appends <- appendUntil(ctx, store, node.Name, bufio.NewWriter(out))
	}()
	err = rt.Run(ctx)
	stop()
	return errors.Join(err, <-appends)
}

// appendUntil appends an event to each tenant now and then, until ctx ends.
func appendUntil(ctx context.Context, store Store, writer string, out *bufio.Writer) error {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for i := 0; ; i++ {
		err := appendRound(ctx, store, writer, i, out)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func appendRound(ctx context.Context, store Store, writer string, i int, out *bufio.Writer) error {
	names, err := store.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		tenant, err := store.Tenant(name)
		if err != nil {
			return err
		}
		done, err := appendOne(ctx, tenant, i, event.Any.WithKey(fmt.Sprintf("%s-%d", writer, i)))
		if errors.Is(err, errTenantArchived) {
			continue
		}
		if err != nil {
			return fmt.Errorf("append to tenant %s: %w", name, err)
		}
		if _, err := fmt.Fprintf(out, "%s %d\n", name, done.Positions[0]); err != nil {
			return err
		}
	}
	return out.Flush()
}
