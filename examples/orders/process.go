package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/aggregate"
	"github.com/millrace-go/millrace/event"
	"github.com/millrace-go/millrace/pgstore"
)

// process carries each order through its payment. Its functions are the handler of a projection: what they append
// commits with the checkpoint, so each event leads to one decision. Tx is the transaction of the store.
type process[Tx any] struct {
	store aggregate.TxStore[Tx]
}

func (p process[Tx]) onPlaced(ctx context.Context, tx Tx, e event.Of[OrderPlaced]) error {
	id, _ := orders.ID(e.Stream)
	_, err := payments.Do(ctx, aggregate.Within(p.store, tx), id, request(e.Body))
	return err
}

// onMade pays the order, or asks for a refund if the order was cancelled meanwhile.
func (p process[Tx]) onMade(ctx context.Context, tx Tx, e event.Of[PaymentMade]) error {
	id, _ := payments.ID(e.Stream)
	_, err := orders.Do(ctx, aggregate.Within(p.store, tx), id, pay(e.Body.Reference))
	if errors.Is(err, ErrCancelled) {
		_, err = payments.Do(ctx, aggregate.Within(p.store, tx), id, refund)
	}
	return err
}

func (p process[Tx]) onDeclined(ctx context.Context, tx Tx, e event.Of[PaymentDeclined]) error {
	id, _ := payments.ID(e.Stream)
	_, err := orders.Do(ctx, aggregate.Within(p.store, tx), id, cancel("the payment was declined"))
	return err
}

// provider is the client of the payment provider. It sends each request with the token of its event, by which the
// provider detects repeats.
type provider struct{ url string }

func (p provider) request(ctx context.Context, e millrace.DeliveredOf[PaymentRequested]) error {
	id, _ := payments.ID(e.Stream)
	return p.post(ctx, "/payments/"+id, e.Token, e.Body)
}

func (p provider) refund(ctx context.Context, e millrace.DeliveredOf[RefundRequested]) error {
	id, _ := payments.ID(e.Stream)
	return p.post(ctx, "/refunds/"+id, e.Token, e.Body)
}

func (p provider) post(ctx context.Context, path, token string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	call.Header.Set("Idempotency-Key", token)
	response, err := http.DefaultClient.Do(call)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the provider answered %s", response.Status)
	}
	return nil
}

// The list of orders, a read model. pgstore.Queue and sqlitestore.Queue are the same type, and this SQL is that of both
// databases.
func listPlaced(_ context.Context, q pgstore.Queue, e event.Of[OrderPlaced]) error {
	id, _ := orders.ID(e.Stream)
	q.Exec(`insert into order_list (id, customer, cents, state) values ($1, $2, $3, 'placed')`, id, e.Body.Customer,
		e.Body.Cents)
	return nil
}

func listPaid(_ context.Context, q pgstore.Queue, e event.Of[OrderPaid]) error {
	id, _ := orders.ID(e.Stream)
	q.Expect(1).Exec(`update order_list set state = 'paid' where id = $1`, id)
	return nil
}

func listCancelled(_ context.Context, q pgstore.Queue, e event.Of[OrderCancelled]) error {
	id, _ := orders.ID(e.Stream)
	q.Expect(1).Exec(`update order_list set state = 'cancelled' where id = $1`, id)
	return nil
}

// The deadlines of orders that are neither paid nor cancelled, in milliseconds since 1970.
func setDeadline(patience time.Duration) func(context.Context, pgstore.Queue, event.Of[OrderPlaced]) error {
	return func(_ context.Context, q pgstore.Queue, e event.Of[OrderPlaced]) error {
		id, _ := orders.ID(e.Stream)
		q.Exec(`insert into deadlines (id, due) values ($1, $2)`, id, e.Time.Add(patience).UnixMilli())
		return nil
	}
}

func clearPaid(_ context.Context, q pgstore.Queue, e event.Of[OrderPaid]) error {
	return clearDeadline(q, e.Stream)
}

func clearCancelled(_ context.Context, q pgstore.Queue, e event.Of[OrderCancelled]) error {
	return clearDeadline(q, e.Stream)
}

func clearDeadline(q pgstore.Queue, stream string) error {
	id, _ := orders.ID(stream)
	q.Exec(`delete from deadlines where id = $1`, id)
	return nil
}

// expire cancels the orders whose time is up. It may run on several nodes at once: the decision is made once.
func expire(ctx context.Context, s *service) error {
	due, err := s.due(ctx, time.Now())
	for _, id := range due {
		_, failed := orders.Do(ctx, s.store, id, cancel("not paid in time"))
		if failed != nil && !errors.Is(failed, ErrPaid) { // paid at the last moment
			err = errors.Join(err, failed)
		}
	}
	return err
}
