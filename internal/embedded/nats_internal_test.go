package embedded

import (
	"log/slog"
	"testing"
)

// A server that holds the store syncs each message, another one does not wait for the disk.
func TestNATSDurable(t *testing.T) {
	for _, durable := range []bool{true, false} {
		n, err := StartNATS(t.Context(), NATSOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0", Durable: durable, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.server.JetStreamConfig().SyncAlways; got != durable {
			t.Errorf("durable %t: each message is synced: %t", durable, got)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}
