package ucx_test

import (
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl/ucx"
)

// Another program gets what a transport with these options would use: what the
// environment sets comes first.
func TestEnvironment(t *testing.T) {
	o := ucx.Options{AnyNetwork: true, Settings: map[string]string{"TLS": "tcp", "LOG_LEVEL": "error"}}
	t.Setenv("UCX_TLS", "tcp")
	t.Setenv("UCX_LOG_LEVEL", "fatal")
	got, rdma := o.Environment()
	if want := []string{"UCX_KEEPALIVE_INTERVAL=1s", "UCX_LOG_LEVEL=fatal", "UCX_TLS=tcp"}; !slices.Equal(got, want) || rdma {
		t.Errorf("got %q, by RDMA %t, want %q", got, rdma, want)
	}
}
