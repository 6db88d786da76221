//go:build !kubernetes

package dial

import (
	"fmt"
	"log/slog"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/access"
	"github.com/dynctl/dynctl/internal/store"
)

// kubernetes returns an error: this program was built without Kubernetes.
func kubernetes(c config.Kubernetes, _ bool, _ *slog.Logger) (store.Store, error) {
	_, err := Kubernetes(c)
	return nil, err
}

// Kubernetes returns an error: this program was built without Kubernetes.
func Kubernetes(config.Kubernetes) (*kube.Client, error) {
	_, err := access.Client(access.Config{})
	return nil, fmt.Errorf("connect to Kubernetes: %w", err)
}
