package doctor

import (
	"context"
	"net"
	"testing"
	"time"
)

// Who takes connections and says nothing is not waited for.
func TestWhoListensIsAskedAndNotForLong(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if who := whoListens(ctx, l.Addr().String()); who != "" || ctx.Err() != nil {
		t.Errorf("%q, %v", who, ctx.Err())
	}
}
