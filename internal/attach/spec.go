package attach

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/outside"
)

const (
	defaultTTL = 30 * time.Second
	maxTTL     = time.Hour
)

func ttlOf(s cluster.Service) time.Duration {
	if s.TTLSeconds == 0 {
		return defaultTTL
	}
	return time.Duration(s.TTLSeconds) * time.Second
}

// check returns the program of a service, and the name of what it answers in the namespace of this node.
func check(s cluster.Service, namespace string) (*outside.Service, cluster.Endpoint, error) {
	var name cluster.Endpoint
	switch {
	case (s.Endpoint == "") == (s.Model == nil):
		return nil, name, errors.New("either an endpoint or a model is required")
	case s.Model != nil:
		if s.Model.Name == "" {
			return nil, name, errors.New("the model has no name")
		}
		name = cluster.Endpoint{Namespace: namespace, Component: cluster.RoleDecode.Component(), Name: cluster.EndpointGenerate}
	default:
		var err error
		if name, err = cluster.ParseEndpoint(s.Endpoint); err != nil {
			return nil, name, err
		}
	}
	if name.Component == cluster.ComponentAgent || name.Component == cluster.ComponentFrontend {
		return nil, name, fmt.Errorf("the component %s belongs to dynamod", name.Component)
	}
	if s.TTLSeconds < 0 || ttlOf(s) > maxTTL {
		return nil, name, fmt.Errorf("ttl_seconds: %d is not between 1 and %d", s.TTLSeconds, int(maxTTL/time.Second))
	}
	service, err := outside.NewService(s.URL, s.ReadyURL)
	return service, name, err
}
