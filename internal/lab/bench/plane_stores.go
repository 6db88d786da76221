package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/undo"
)

const (
	caseSync    = "write 2 KiB and fsync"
	caseEtcd    = "etcd, put to watch event"
	caseNATS    = "event plane, publish to subscriber"
	caseQueue   = "work queue, enqueue to handler"
	keyBySync   = "times_fsync"
	valueBytes  = 200 // of a key or an event
	queueSlots  = 2   // as for a prefill worker
	waitForNews = 10 * time.Second
)

// errNoNews is returned when a message did not arrive.
var errNoNews = errors.New("nothing arrived within 10 s")

// stores are embedded servers with clients.
type stores struct {
	etcd  *store.Etcd
	bus   *events.NATS
	raw   func() error // publishes past the event plane
	alone func() error // puts past the store
	watch *store.Watcher
	news  chan string // keys of events and queue messages
	file  *os.File
	back  undo.Stack
}

func newStores(ctx context.Context, s *session) (_ *stores, err error) {
	st := &stores{news: make(chan string, 16)}
	defer func() {
		if err != nil {
			st.back.Run(stopStep, s.log)
		}
	}()
	// With certificates, as they are in a dynamod.
	id := dial.Identity{User: "bench", Secret: credentials.New()}
	creds, err := embedded.NewCredentials(id.Secret)
	if err != nil {
		return nil, err
	}
	etcd, err := embedded.StartEtcd(ctx, embedded.EtcdOptions{Dir: filepath.Join(s.tmp, "etcd"), ClientAddr: "127.0.0.1:0", Credentials: creds, Log: s.log})
	if err != nil {
		return nil, err
	}
	st.back.Push("stop etcd", func(context.Context) error { return etcd.Close() })
	nats, err := embedded.StartNATS(ctx, embedded.NATSOptions{Dir: filepath.Join(s.tmp, "nats"), Addr: "127.0.0.1:0", Credentials: creds, Log: s.log})
	if err != nil {
		return nil, err
	}
	st.back.Push("stop NATS", func(context.Context) error { return nats.Close() })
	if st.etcd, err = dial.Etcd(config.EtcdClient{}, []string{config.SchemeDynamod + etcd.Endpoint()}, id, s.log); err != nil {
		return nil, err
	}
	st.back.Push("close the etcd connection", func(context.Context) error { return st.etcd.Close() })
	if st.bus, err = dial.NATS(config.NATSClient{}, config.SchemeDynamod+nats.Addr(), "bench", id, s.log); err != nil {
		return nil, err
	}
	st.back.Push("close the NATS connection", func(context.Context) error { return st.bus.Close() })
	if st.raw, err = rawPublish(nats.Addr(), id, &st.back); err != nil {
		return nil, err
	}
	if st.alone, err = rawEtcd(ctx, etcd.Endpoint(), id, &st.back); err != nil {
		return nil, err
	}
	if st.watch, err = st.etcd.Watch(ctx, benchPrefix); err != nil {
		return nil, err
	}
	if _, err := st.bus.Subscribe(ctx, benchSubject(), func(e events.Event) {
		var v message
		if e.Decode(&v) == nil {
			st.tell(v.Key)
		}
	}); err != nil {
		return nil, err
	}
	if st.file, err = os.Create(filepath.Join(s.tmp, "fsync")); err != nil {
		return nil, err
	}
	st.back.Push("close a file", func(context.Context) error { return st.file.Close() })
	return st, nil
}

const benchPrefix = "/bench/"

func benchSubject() string { return events.Subject("bench", "bench", "news") }

// message is the published value.
type message struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// tell passes on the key of an arrived message. It drops messages without a waiter.
func (st *stores) tell(key string) {
	select {
	case st.news <- key:
	default:
	}
}

// await waits for the message with a key on the event plane or the queue.
func (st *stores) await(ctx context.Context, key string) error {
	limit := time.NewTimer(waitForNews)
	defer limit.Stop()
	for {
		select {
		case got := <-st.news:
			if got == key {
				return nil
			}
		case <-limit.C:
			return errNoNews
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// put writes a key and waits for its event.
func (st *stores) put(ctx context.Context, key string) error {
	if _, err := st.etcd.Put(ctx, key, make([]byte, valueBytes)); err != nil {
		return err
	}
	limit := time.NewTimer(waitForNews)
	defer limit.Stop()
	for {
		select {
		case e, ok := <-st.watch.Events():
			if !ok {
				return errNoNews
			}
			if e.Type == store.Put && e.KV.Key == key {
				return nil
			}
		case <-limit.C:
			return errNoNews
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (st *stores) publish(ctx context.Context, key string) error {
	if err := st.bus.Publish(ctx, benchSubject(), message{Key: key, Value: make([]byte, valueBytes)}); err != nil {
		return err
	}
	return st.await(ctx, key)
}

// sync writes a page that stays.
func (st *stores) sync() error {
	if _, err := st.file.WriteAt(make([]byte, 2048), 0); err != nil {
		return err
	}
	return st.file.Sync()
}

func storePlanes(ctx context.Context, s *session, sec *Section) error {
	st, err := newStores(ctx, s)
	if err != nil {
		return err
	}
	defer st.back.Run(stopStep, s.log)
	queue, err := st.bus.WorkQueue("bench", events.QueueConfig{})
	if err != nil {
		return err
	}
	consuming, stop := context.WithCancel(ctx)
	consumed := make(chan struct{})
	go func() {
		defer close(consumed)
		// It ends with its context. If it failed before, messages would not arrive.
		_ = queue.Consume(consuming, queueSlots, func(ctx context.Context, d *events.Delivery) {
			st.tell(d.ID)
			_ = d.Ack(ctx) // otherwise it comes again and is ignored
		})
	}()
	defer func() {
		stop()
		<-consumed
	}()
	plain, err := newPingLoopback()
	if err != nil {
		return err
	}
	defer plain.close()

	sc, n := s.scale.plane, 0
	each := func(count int, f func(ctx context.Context, key string) error) func(context.Context) ([]time.Duration, error) {
		return func(ctx context.Context) ([]time.Duration, error) {
			return repeat(count, func() error {
				n++
				return f(ctx, benchPrefix+strconv.Itoa(n))
			})
		}
	}
	enqueue := func(ctx context.Context, key string) error {
		if err := queue.Enqueue(ctx, key, make([]byte, valueBytes)); err != nil {
			return err
		}
		return st.await(ctx, key)
	}
	// The first use makes connections and streams, which must not be measured.
	for _, f := range []func(context.Context, string) error{st.put, st.publish, enqueue} {
		if _, err := each(3, f)(ctx); err != nil {
			return fmt.Errorf("try out the stores: %w", err)
		}
	}
	res, err := s.takeTurns(ctx, "etcd and NATS", sc.turns, []Case{
		latencyCase(casePing, time.Microsecond, func(context.Context) ([]time.Duration, error) { return plain.pings(sc.messages) }),
		latencyCase(caseSync, time.Microsecond, func(context.Context) ([]time.Duration, error) { return repeat(sc.puts, st.sync) }),
		latencyCase(caseRawEtcd, time.Microsecond, func(context.Context) ([]time.Duration, error) { return repeat(sc.puts, st.alone) }),
		latencyCase(caseEtcd, time.Microsecond, each(sc.puts, st.put)),
		latencyCase(caseRawPublish, time.Microsecond, func(context.Context) ([]time.Duration, error) { return repeat(sc.messages, st.raw) }),
		latencyCase(caseNATS, time.Microsecond, each(sc.messages, st.publish)),
		latencyCase(caseQueue, time.Microsecond, each(sc.puts, enqueue)),
	})
	if err != nil {
		return err
	}
	for _, c := range []string{caseRawEtcd, caseEtcd} {
		res.ratio(c, keyBySync, keyLatency+"_p50", caseSync, 1)
	}
	for _, c := range []string{caseRawPublish, caseNATS, caseQueue} {
		res.ratio(c, keyFactor, keyLatency+"_p50", casePing, 1)
	}
	sec.Tables = append(sec.Tables, res.table("Embedded etcd and NATS", "Values of 200 bytes, one at a time.", append(latencyColumns("µs"),
		Column{keyFactor, "× plain TCP", nixlFactor},
		Column{keyBySync, "× fsync", "p50 against that of the write with fsync, which a put has to wait for"})))
	return nil
}
