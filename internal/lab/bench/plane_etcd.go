package bench

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/undo"
)

const caseRawEtcd = "etcd's own client, put to watch event"

// rawEtcd returns what puts a key and waits for its event with etcd's client alone.
func rawEtcd(ctx context.Context, endpoint string, id dial.Identity, back *undo.Stack) (put func() error, err error) {
	tls, err := id.Secret.ClientTLS(id.User)
	if err != nil {
		return nil, err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + endpoint}, TLS: tls, DialTimeout: waitForNews})
	if err != nil {
		return nil, err
	}
	back.Push("close etcd's client", func(context.Context) error { return c.Close() })
	const key = "/raw/key"
	arrived := c.Watch(ctx, key)
	value := string(make([]byte, valueBytes))
	limit := time.NewTimer(waitForNews)
	return func() error {
		if _, err := c.Put(ctx, key, value); err != nil {
			return err
		}
		limit.Reset(waitForNews)
		select {
		case r := <-arrived:
			return r.Err()
		case <-limit.C:
			return errNoNews
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, nil
}
