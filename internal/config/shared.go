package config

import (
	"path/filepath"
	"slices"
	"strings"
)

// SchemeDynamod begins the address of an etcd or NATS server inside a dynamod. Such a server
// asks for the cluster's secret, and nothing else is asked for there.
const SchemeDynamod = "dynamod://"

// EtcdClient configures access to the cluster's etcd.
type EtcdClient struct {
	// Endpoints are "host:port", "http(s)://host:port", or "dynamod://host:port".
	Endpoints []string `mapstructure:"endpoints"`
	Username  string   `mapstructure:"username"`
	Password  Secret   `mapstructure:"password"`
	// CAFile, CertFile and KeyFile are paths, or the PEM text itself.
	CAFile   string `mapstructure:"ca_file"`
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
}

// FrontendClient configures access to frontends that serve HTTPS.
type FrontendClient struct {
	// CAFile, CertFile and KeyFile are paths, or the PEM text itself.
	CAFile   string `mapstructure:"ca_file"`
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
}

// NATSClient configures access to the cluster's NATS.
type NATSClient struct {
	// URL is one or more "nats://host:port", joined by commas, or "dynamod://host:port".
	URL      string `mapstructure:"url"`
	Username string `mapstructure:"username"`
	Password Secret `mapstructure:"password"`
	Token    Secret `mapstructure:"token"`
	// NKey is the seed of an NKey, or a file with it.
	NKey      Secret `mapstructure:"nkey"`
	CredsFile string `mapstructure:"creds_file"`
	// CAFile, CertFile and KeyFile are paths, or the PEM text itself.
	CAFile   string `mapstructure:"ca_file"`
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
}

// InDynamod reports whether the endpoints are those of an etcd inside a dynamod.
func (e EtcdClient) InDynamod() bool { return inDynamod(e.Endpoints...) }

// InDynamod reports whether the URL is that of a NATS server inside a dynamod.
func (n NATSClient) InDynamod() bool { return inDynamod(strings.Split(n.URL, ",")...) }

func inDynamod(addrs ...string) bool {
	return slices.ContainsFunc(addrs, func(a string) bool { return strings.HasPrefix(strings.TrimSpace(a), SchemeDynamod) })
}

// defaultStateDir follows the XDG base directory rules: a relative
// XDG_STATE_HOME is ignored. Without a home there is no default.
func defaultStateDir(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "dynctl")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "dynctl")
	}
	return ""
}

// frontendClientKeys are those of programs that talk to frontends over HTTPS.
func frontendClientKeys() []Key {
	return []Key{
		{Name: "frontend.ca_file", Kind: KindPath, Default: "", Help: "certificate authority of frontends that serve HTTPS: a file, or the PEM text itself; empty means those of the system"},
		{Name: "frontend.cert_file", Kind: KindPath, Default: "", Help: "client certificate for frontends that ask for one: a file, or the PEM text itself"},
		{Name: "frontend.key_file", Kind: KindPath, Default: "", Help: "key of that certificate: a file, or the PEM text itself"},
	}
}

func etcdClientKeys() []Key {
	return []Key{
		{
			Name: "etcd.endpoints", Kind: KindList, Default: []string{},
			Help:    "etcd servers of the cluster, as host:port, https://host:port, or dynamod://host:port for the one inside a dynamod",
			Aliases: []Alias{{Name: "ETCD_ENDPOINTS"}},
		},
		{
			Name: "etcd.username", Kind: KindString, Default: "",
			Help:    "etcd user",
			Aliases: []Alias{{Name: "ETCD_AUTH_USERNAME"}},
		},
		{
			Name: "etcd.password", Kind: KindSecret, Default: Secret(""),
			Help:    "password of the etcd user",
			Aliases: []Alias{{Name: "ETCD_AUTH_PASSWORD"}},
		},
		{
			Name: "etcd.ca_file", Kind: KindPath, Default: "",
			Help:    "certificate authority that signed etcd's certificate: a file, or the PEM text itself",
			Aliases: []Alias{{Name: "ETCD_AUTH_CA"}},
		},
		{
			Name: "etcd.cert_file", Kind: KindPath, Default: "",
			Help:    "client certificate for etcd: a file, or the PEM text itself",
			Aliases: []Alias{{Name: "ETCD_AUTH_CLIENT_CERT"}},
		},
		{
			Name: "etcd.key_file", Kind: KindPath, Default: "",
			Help:    "key of the client certificate: a file, or the PEM text itself",
			Aliases: []Alias{{Name: "ETCD_AUTH_CLIENT_KEY"}},
		},
	}
}

func natsClientKeys() []Key {
	return []Key{
		{
			Name: "nats.url", Kind: KindString, Default: "",
			Help:    "NATS servers of the cluster, as nats://host:port, joined by commas, or dynamod://host:port for the one inside a dynamod",
			Aliases: []Alias{{Name: "NATS_SERVER"}},
		},
		{
			Name: "nats.username", Kind: KindString, Default: "",
			Help:    "NATS user",
			Aliases: []Alias{{Name: "NATS_AUTH_USERNAME"}},
		},
		{
			Name: "nats.password", Kind: KindSecret, Default: Secret(""),
			Help:    "password of the NATS user",
			Aliases: []Alias{{Name: "NATS_AUTH_PASSWORD"}},
		},
		{
			Name: "nats.token", Kind: KindSecret, Default: Secret(""),
			Help:    "NATS token, used without a user",
			Aliases: []Alias{{Name: "NATS_AUTH_TOKEN"}},
		},
		{
			Name: "nats.nkey", Kind: KindSecret, Default: Secret(""),
			Help:    "seed of the NKey of the NATS user, or a file with it, used without a user and a token",
			Aliases: []Alias{{Name: "NATS_AUTH_NKEY"}},
		},
		{
			Name: "nats.creds_file", Kind: KindPath, Default: "",
			Help:    "NATS credentials file, used without a user, a token and an NKey",
			Aliases: []Alias{{Name: "NATS_AUTH_CREDENTIALS_FILE"}},
		},
		{
			Name: "nats.ca_file", Kind: KindPath, Default: "",
			Help:    "certificate authority that signed the certificate of NATS, which tls:// in nats.url asks for: a file, or the PEM text itself",
			Aliases: []Alias{{Name: "NATS_TLS_CA_CERT_PATH"}},
		},
		{
			Name: "nats.cert_file", Kind: KindPath, Default: "",
			Help: "client certificate for NATS: a file, or the PEM text itself",
		},
		{
			Name: "nats.key_file", Kind: KindPath, Default: "",
			Help: "key of the client certificate: a file, or the PEM text itself",
		},
	}
}

func clusterKeys() []Key {
	return []Key{
		{
			Name: "cluster", Kind: KindString, Default: DefaultCluster, Short: "c",
			Help: "name of the cluster, shown wherever its state is shown",
		},
		{
			Name: "namespace", Kind: KindString, Default: defaultNamespace,
			Help:    "namespace of all keys and subjects; several clusters can share etcd and NATS under different ones",
			Aliases: []Alias{{Name: "DYN_NAMESPACE"}},
		},
		{
			Name: "state_dir", Kind: KindPath, DefaultText: "~/.local/state/dynctl", defaultFrom: defaultStateDir,
			Help: "directory for what outlives a process: embedded servers, the built-in model, logs; the default follows XDG_STATE_HOME",
		},
		{
			Name: "secret_file", Kind: KindPath, Default: "",
			Help: "file with the secret that all programs of the cluster share; empty means the one in state_dir",
		},
	}
}
