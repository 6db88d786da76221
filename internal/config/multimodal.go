package config

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Multimodal says where the images of requests become embeddings.
type Multimodal struct {
	// EncodeEndpoint names the endpoint of the encode workers; empty means that of the
	// node's namespace. See [Multimodal.Encode].
	EncodeEndpoint string `mapstructure:"encode_endpoint"`
}

// Encode returns the endpoint of the encode workers for a node of the namespace.
func (m Multimodal) Encode(namespace string) (cluster.Endpoint, error) {
	if m.EncodeEndpoint == "" {
		return cluster.Endpoint{Namespace: namespace, Component: cluster.RoleEncode.Component(), Name: cluster.EndpointGenerate}, nil
	}
	e, err := cluster.ParseEndpoint(m.EncodeEndpoint)
	if err != nil || !strings.HasPrefix(m.EncodeEndpoint, cluster.EndpointScheme) {
		return cluster.Endpoint{}, fmt.Errorf("%q is not %s", m.EncodeEndpoint, endpointForm)
	}
	return e, nil
}

// endpointForm says in words what the full name of an endpoint looks like.
const endpointForm = cluster.EndpointScheme + "namespace.component.endpoint"

func multimodalKeys() []Key {
	return []Key{{
		Name: "multimodal.encode_endpoint", Kind: KindString, Default: "", Form: endpointForm,
		Reads: func(text string) error {
			_, err := Multimodal{text}.Encode(cluster.DefaultNamespace)
			return err
		},
		Aliases: []Alias{{Name: "ENCODE_ENDPOINT"}},
		Help:    "endpoint of the encode workers, which turn images into embeddings, as dyn://namespace.component.endpoint; empty means dyn://{namespace}.encode.generate, the encode workers of this cluster",
	}}
}
