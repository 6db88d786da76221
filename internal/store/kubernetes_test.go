package store_test

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

func TestKubernetes(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store {
		return openKubernetes(t, kubetest.New(t).Client("test"), kube.Pod{})
	})
}

// The keys of instances in a pod's document behave as others.
func openKubernetes(t *testing.T, c *kube.Client, pod kube.Pod) *store.Kubernetes {
	t.Helper()
	s, err := store.NewKubernetes(store.KubernetesConfig{Client: c, Pod: pod, MinTTL: time.Second}, storetest.Discard)
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
