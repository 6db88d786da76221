package store_test

import (
	"context"
	"testing"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

func TestNATS(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return openNATS(t, startNATS(t, t.TempDir(), "127.0.0.1:0").URL()) })
}

func startNATS(t *testing.T, dir, addr string) *embedded.NATS {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	s, err := embedded.StartNATS(ctx, embedded.NATSOptions{Dir: dir, Addr: addr, Log: storetest.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openNATS(t *testing.T, url string) *store.NATS {
	t.Helper()
	s, err := store.NewNATS(store.NATSConfig{Config: natsconn.Config{URL: url, Name: t.Name()}}, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
