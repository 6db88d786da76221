//go:build !kubernetes

package access

import (
	"errors"

	"github.com/dynctl/dynctl/internal/kube"
)

// Built says that this program can use Kubernetes.
const Built = false

// Client returns an error that says how to build a program with Kubernetes.
func Client(Config) (*kube.Client, error) {
	return nil, errors.New("this program was built without Kubernetes: build it with -tags kubernetes")
}
