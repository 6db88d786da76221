//go:build !kubernetes

package dial

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
)

func TestKubernetesNeedsTheTag(t *testing.T) {
	if s, err := kubernetes(config.Kubernetes{}, true, quiet); err == nil || s != nil || !strings.Contains(err.Error(), "build it with -tags kubernetes") {
		t.Errorf("got %v, %v", s, err)
	}
	if c, err := Kubernetes(config.Kubernetes{}); err == nil || c != nil || !strings.Contains(err.Error(), "build it with -tags kubernetes") {
		t.Errorf("a client: %v, %v", c, err)
	}
}
