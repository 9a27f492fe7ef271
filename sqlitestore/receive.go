package sqlitestore

import (
	"context"
	"os"

	"github.com/millrace-go/millrace/internal/store"
	"github.com/millrace-go/millrace/internal/usercode"
)

// Receive implements store.Control. Nothing else writes to the file until it ends.
func (s port) Receive(ctx context.Context, r store.Reception) error {
	err := s.notWithin(ctx)
	if err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	t, err := s.writer.open(ctx, 0)
	if err != nil {
		return s.damaged(err)
	}
	defer t.end()
	s.sessions.announced = false
	if err := s.receive(ctx, t, r); err != nil {
		return s.damaged(err)
	}
	if s.sessions.announced {
		s.sessions.wake()
	}
	return nil
}

func (s port) receive(ctx context.Context, t *transaction, r store.Reception) error {
	err := s.on(ctx, t.Tx).run(func(tx store.Tx) error {
		if err := createOne(tx, r.Tenant); err != nil {
			return err
		}
		return r.Fill(tx)
	})
	if err != nil {
		return err
	}
	t.lend(ctx)
	if r.Hook.Run != nil {
		marked, ended := s.mark(ctx)
		err := usercode.Run(func() error { return r.Hook.Call(marked, t.Tx) })
		ended()
		if err != nil {
			return err
		}
	}
	ctx = t.takeBack(ctx)
	if err := t.ended(); err != nil {
		return err
	}
	if err := t.checkLeft(ctx); err != nil {
		return err
	}
	err = s.on(ctx, t.Tx).run(func(tx store.Tx) error {
		_, err := r.End(tx)
		return err
	})
	if err != nil {
		return err
	}
	return t.commit(ctx)
}

// IsSame implements store.Control.
func (s port) IsSame(_ context.Context, other store.Control) (bool, error) {
	o, ok := other.(port)
	if !ok {
		return false, nil
	}
	own, err := os.Stat(s.path)
	if err != nil {
		return false, err
	}
	theirs, err := os.Stat(o.path)
	return err == nil && os.SameFile(own, theirs), err
}
