package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"regexp"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"
)

// watermillPeer is Watermill-SQL with a topic for each round.
type watermillPeer struct {
	db         *sql.DB
	name       string
	topic      string
	publisher  *watermillsql.Publisher
	subscriber *watermillsql.Subscriber
}

// notInTopics are characters that a topic cannot have.
var notInTopics = regexp.MustCompile(`[^a-zA-Z0-9]+`)

// newWatermill returns Watermill-SQL with a poll interval, 0 for its default.
func newWatermill(interval time.Duration) peerFunc {
	return func(ctx context.Context, e *env, name string) (peer, error) {
		pool, err := e.pool(ctx, peerConnections, nil)
		if err != nil {
			return nil, err
		}
		db := stdlib.OpenDBFromPool(pool)
		e.atEnd(func(context.Context) error { return db.Close() })
		schema := watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: handBatch}
		p := &watermillPeer{db: db, name: name, topic: notInTopics.ReplaceAllString(name, "_")}
		p.subscriber, err = watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
			ConsumerGroup: "bench", SchemaAdapter: schema,
			OffsetsAdapter:   watermillsql.DefaultPostgreSQLOffsetsAdapter{},
			InitializeSchema: true, PollInterval: interval,
		}, watermill.NopLogger{})
		if err != nil {
			return nil, err
		}
		if err := p.subscriber.SubscribeInitialize(p.topic); err != nil {
			return nil, err
		}
		p.publisher, err = watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: schema},
			watermill.NopLogger{})
		return p, err
	}
}

func (p *watermillPeer) insert(_ context.Context, from, n int) error {
	list := make([]*message.Message, n)
	for i := range list {
		list[i] = message.NewMessage(watermill.NewUUID(), message.Payload(numbered(from+i).Body))
	}
	return p.publisher.Publish(p.topic, list...)
}

// run reports an event when it is acknowledged, shortly before Watermill commits: the library reports no commits. When
// ctx ends, the subscriber closes after the commit of the batch in progress.
func (p *watermillPeer) run(ctx context.Context, applied func(n int)) error {
	messages, err := p.subscriber.Subscribe(context.WithoutCancel(ctx), p.topic)
	if err != nil {
		return err
	}
	closed := make(chan error, 1)
	unregister := context.AfterFunc(ctx, func() { closed <- p.subscriber.Close() })
	for m := range messages {
		n, err := p.apply(m)
		if err != nil {
			m.Nack()
			return errors.Join(err, p.subscriber.Close())
		}
		m.Ack()
		applied(n)
	}
	if unregister() {
		return errors.New("the subscription ended by itself")
	}
	return <-closed
}

// apply writes the row of an event in Watermill's transaction.
func (p *watermillPeer) apply(m *message.Message) (int, error) {
	tx, ok := watermillsql.TxFromContext(m.Context())
	if !ok {
		return 0, errors.New("the message has no transaction")
	}
	var body struct{ N int }
	if err := json.Unmarshal(m.Payload, &body); err != nil {
		return 0, err
	}
	_, err := tx.ExecContext(m.Context(), appliedSQL, p.name, body.N)
	return body.N, err
}
