package store_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/apiservertest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// The suite runs against a kube-apiserver, each store in a namespace of its own.
func TestKubernetesAPIServer(t *testing.T) {
	server := apiservertest.Start(t)
	var n atomic.Int64
	t.Run("Suite", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) store.Store {
			ns := server.Namespace(t, fmt.Sprintf("suite-%d", n.Add(1)))
			return openKubernetes(t, server.Client(t, ns, ""), kube.Pod{})
		})
	})
	t.Run("Pods", func(t *testing.T) {
		podBehaviors(t, func(t *testing.T) namespace {
			return namespace{t, server.Client(t, server.Namespace(t, fmt.Sprintf("pods-%d", n.Add(1))), "")}
		})
	})
}
