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
	// AllowedLocalMediaPath is where files that requests name may lie. Empty means files of
	// embeddings in /tmp, MediaNone none.
	AllowedLocalMediaPath string `mapstructure:"allowed_local_media_path"`
	MaxFileSizeMB         int    `mapstructure:"max_file_size_mb"` // MiB
	AllowPrivate          bool   `mapstructure:"allow_private_addresses"`
	EmbeddingCacheMB      int    `mapstructure:"embedding_cache_mb"` // MiB, of each worker
}

// MediaNone lets requests name no files of the node.
const MediaNone = "none"

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
			_, err := Multimodal{EncodeEndpoint: text}.Encode(cluster.DefaultNamespace)
			return err
		},
		Aliases: []Alias{{Name: "ENCODE_ENDPOINT"}},
		Help:    "endpoint of the encode workers, which turn images into embeddings, as dyn://namespace.component.endpoint; empty means dyn://{namespace}.encode.generate, the encode workers of this cluster",
	}, {
		Name: "multimodal.allowed_local_media_path", Kind: KindPath, Default: "", Aliases: []Alias{{Name: "ALLOWED_LOCAL_MEDIA_PATH"}},
		Help: "directory of this node whose files requests may name as images; empty allows files of embeddings (.pt, .pth, .bin, .safetensors) in /tmp and nothing else, none allows no files",
	}, {
		Name: "multimodal.max_file_size_mb", Kind: KindInt, Default: 50, Min: 1, Max: 1024, Aliases: []Alias{{Name: "MAX_FILE_SIZE_MB"}},
		Help: "largest image or file of embeddings, in MiB, whether a request contains it, a web server sends it or a file has it",
	}, {
		Name: "multimodal.allow_private_addresses", Kind: KindBool, Default: false, Aliases: []Alias{{Name: "DYN_MM_ALLOW_INTERNAL"}},
		Help: "fetch images also from addresses that are not public, such as those of this network, and by http: then whoever may send requests can have the node read what it can reach",
	}, {
		Name: "multimodal.embedding_cache_mb", Kind: KindInt, Default: 256, Min: 1, Max: 1 << 20,
		Help: "memory of each worker for embeddings of images, in MiB: an image that comes again is neither encoded nor moved while they are there",
	}}
}
