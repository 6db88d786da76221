//go:build kubernetes

package access

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dynctl/dynctl/internal/kube"
)

// Built says that this program can use Kubernetes.
const Built = true

// Client returns a client with the default limit of requests. It does not connect yet.
func Client(cfg Config) (*kube.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if files := filepath.SplitList(cfg.Kubeconfig); len(files) > 1 {
		rules.Precedence = files // merged; some may be missing
	} else {
		rules.ExplicitPath = cfg.Kubeconfig
	}
	overrides := &clientcmd.ConfigOverrides{}
	overrides.Context.Namespace = cfg.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig() // falls back to the service account
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes namespace: %w", err)
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("log in to the Kubernetes API: %w", err)
	}
	http.Timeout = 0 // watches are long; calls have deadlines of their own
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API at %s: %w", config.Host, err)
	}
	return &kube.Client{HTTP: http, Server: strings.TrimSuffix(server.String(), "/"), Namespace: namespace, Limit: kube.NewLimit()}, nil
}
