package decode

import (
	"errors"
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// KV counts as written only when a prefill worker says that it is done with all tokens.
func TestNoticeIsChecked(t *testing.T) {
	req := protocol.RemotePrefillRequest{TokenIDs: make([]uint32, 40)}
	for _, tc := range []struct {
		n    protocol.PrefillNotice
		done bool
	}{
		{protocol.PrefillNotice{Phase: protocol.PrefillDone, Tokens: 40}, true},
		{protocol.PrefillNotice{Phase: protocol.PrefillDone, Tokens: 39}, false},
		{protocol.PrefillNotice{Phase: protocol.PrefillDone, Tokens: 41}, false},
		{protocol.PrefillNotice{Phase: protocol.PrefillFailed, Tokens: 40, Error: "no room"}, false},
		{protocol.PrefillNotice{Phase: protocol.PrefillStarted, Tokens: 40}, false},
		{protocol.PrefillNotice{}, false},
	} {
		if err := checkNotice(tc.n, req); (err == nil) != tc.done || err != nil && !errors.Is(err, errPrefillFailed) {
			t.Errorf("%+v: %v, done %t", tc.n, err, tc.done)
		}
	}
}

// What an error of the request plane says of a prefill worker: gone, failed, or nothing.
func TestLostOrFailed(t *testing.T) {
	remote := func(kind requestplane.Kind) error { return &requestplane.RemoteError{Kind: kind} }
	other := errors.New("other")
	for _, tc := range []struct {
		err, want error
	}{
		{requestplane.ErrDisconnected, errPrefillLost},
		{requestplane.ErrCannotConnect, errPrefillLost},
		{remote(requestplane.KindUnavailable), errPrefillLost},
		{remote(requestplane.KindDraining), errPrefillLost},
		{remote(requestplane.KindUnknownEndpoint), errPrefillLost},
		{remote(requestplane.KindInvalidArgument), errPrefillFailed},
		{other, nil},
	} {
		got := lostOr(tc.err)
		if !errors.Is(got, tc.err) || errors.Is(got, errPrefillLost) != (tc.want == errPrefillLost) || errors.Is(got, errPrefillFailed) != (tc.want == errPrefillFailed) {
			t.Errorf("%v means %v, want %v", tc.err, got, tc.want)
		}
	}
}
